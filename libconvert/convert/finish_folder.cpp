#include "convert/finish_folder.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "container/json_writer.h"
#include "convert/output_hash.h"
#include "convert/text_file.h"
#include "io/file.h"
#include "io/output_folder.h"

namespace prepack {
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kConfigName = "config.json";

Status WriteIndex(const std::filesystem::path& folder, const std::vector<IndexedShard>& shards) {
  uint64_t total = 0;
  for (const IndexedShard& shard : shards) {
    for (const TensorInfo& tensor : shard.header->tensors) total += tensor.bytes();
  }
  Result<TextFile> file = TextFile::Create(folder / kIndexName);
  if (!file.ok()) return file.status();
  JsonWriter json([&file](std::string_view text) { file->Append(text); });
  json.BeginObject();
  json.Member("metadata", {{"total_size", total}});
  json.Key("weight_map");
  json.BeginObject();
  for (const IndexedShard& shard : shards) {
    for (const TensorInfo& tensor : shard.header->tensors) {
      json.MemberText(tensor.name, shard.name);
    }
  }
  json.EndObject();
  json.EndObject();
  json.Flush();
  file->Append("\n");
  return file->Finish();
}

// Notes size and hash of a file in the manifest.
Status RecordFile(const std::filesystem::path& folder, const std::string& name, Progress& progress,
                  Manifest& manifest) {
  const Result<File> file = File::OpenForRead(folder / name);
  if (!file.ok()) return file.status();
  Result<FileRecord> record = HashFile(*file, progress);
  if (!record.ok()) return record.status();
  manifest.files[name] = *std::move(record);
  return {};
}

}  // namespace

Result<uint64_t> CheckSideFiles(const Checkpoint& checkpoint) {
  uint64_t bytes = 0;
  for (const std::string& name : checkpoint.side_files()) {
    if (Printable(name, name.size() + 1) != name) {
      return Malformed(fmt::format("file {}", name), "its name is no readable UTF-8")
          .Hint("Rename it, or move it out of the checkpoint");
    }
    const Result<File> file = File::OpenForRead(checkpoint.path() / name);
    if (!file.ok()) return file.status();
    bytes += file->size();
  }
  return bytes;
}

Result<std::vector<std::string>> CopySideFiles(const Checkpoint& checkpoint,
                                               const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const std::string& name : checkpoint.side_files()) {
    Status status = CopyFile(checkpoint.path() / name, folder / name);
    if (!status.ok()) return status;
    names.push_back(name);
  }
  return names;
}

Result<FileHashes> HashSideFiles(const Checkpoint& checkpoint, Progress& progress) {
  FileHashes hashes;
  for (const std::string& name : checkpoint.side_files()) {
    const Result<File> file = File::OpenForRead(checkpoint.path() / name);
    if (!file.ok()) return file.status();
    Result<FileRecord> record = HashFile(*file, progress);
    if (!record.ok()) return record.status();
    hashes.emplace(name, std::move(record->xxh3_128));
  }
  return hashes;
}

FileHashes SideFilesOf(const Manifest& manifest) {
  FileHashes hashes;
  for (const auto& [name, file] : manifest.files) {
    if (name.ends_with(".safetensors") || name == kIndexName || name == kConfigName) continue;
    hashes.emplace(name, file.xxh3_128);
  }
  return hashes;
}

Status CheckSameFiles(const FileHashes& found, const FileHashes& expected, std::string_view where) {
  FileHashes names = found;
  names.insert(expected.begin(), expected.end());
  for (const auto& [name, hash] : names) {
    const auto side = [&name = name](const FileHashes& hashes) -> std::string {
      const auto file = hashes.find(name);
      return file == hashes.end()
                 ? fmt::format("no {}", Printable(name))
                 : fmt::format("{} with the hash {}", Printable(name), file->second);
    };
    if (side(found) != side(expected)) return AnotherSource(where, side(found), side(expected));
  }
  return {};
}

Status FinishFolder(const std::filesystem::path& folder, const std::vector<IndexedShard>& shards,
                    const std::string& source_config, const std::vector<std::string>& side_files,
                    const PackedContents& contents, Progress& progress, Manifest& manifest) {
  std::vector<std::string> names = side_files;
  if (shards.size() > 1) {
    if (Status status = WriteIndex(folder, shards); !status.ok()) return status;
    names.emplace_back(kIndexName);
  }
  Status status = WriteTextFile(folder / kConfigName,
                                OutputConfigText(source_config, manifest, contents.modules));
  if (!status.ok()) return status;
  names.emplace_back(kConfigName);
  for (const std::string& name : names) {
    status = RecordFile(folder, name, progress, manifest);
    if (!status.ok()) return status;
  }
  return WriteManifest(folder / kManifestName, manifest, contents.records);
}

}  // namespace prepack
