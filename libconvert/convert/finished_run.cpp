#include "convert/finished_run.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "convert/finish_folder.h"
#include "convert/part_record.h"
#include "convert/source_hash.h"
#include "io/look.h"
#include "io/output_folder.h"

namespace prepack {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kReplace = "--force replaces it";

// A file that was removed or cut since is not worth a whole run to notice.
Status CheckFiles(const fs::path& folder, const Manifest& manifest) {
  for (const auto& [name, record] : manifest.files) {
    const Result<std::optional<struct stat>> file = LookAt(folder / name);
    if (!file.ok()) return file.status();
    const bool is_there = file->has_value();
    const uint64_t bytes = is_there ? static_cast<uint64_t>((*file)->st_size) : 0;
    if (is_there && bytes == record.bytes) continue;
    return Malformed((folder / name).string(), "the output is damaged: this file is not as written")
        .Found(is_there ? fmt::format("{} bytes", bytes) : "no such file")
        .Expected(fmt::format("{} bytes", record.bytes))
        .Hint(kReplace);
  }
  return {};
}

// The first line that differs, if any: `now` has all names of `then`.
Status CheckSameTensors(const SourceTensorLines& then, const SourceTensorLines& now,
                        std::string_view where) {
  for (const auto& [name, line] : then) {
    const auto found = now.find(name);
    if (found != now.end() && found->second == line) continue;
    return AnotherSource(where, fmt::format("tensor {} {}", Printable(name), Printable(line)),
                         found == now.end() ? "no such tensor" : found->second);
  }
  return {};
}

// The identity knows the headers of the source, not its numbers: they are read.
Status CheckWholeSource(const std::string& where, const Manifest& manifest,
                        const Checkpoint& source, unsigned threads, Progress& progress) {
  std::vector<const StoredTensor*> tensors;
  for (const StoredTensor& tensor : source.tensors()) tensors.push_back(&tensor);
  TensorHashes hashes(source);
  if (Status status = HashTensorsAsStage(std::move(tensors), threads, progress, hashes);
      !status.ok()) {
    return status;
  }
  const std::string now = SourceFingerprint(hashes);
  if (now == manifest.source_fingerprint) return {};
  return AnotherSource(
      where, fmt::format("weights with the fingerprint {}", manifest.source_fingerprint), now);
}

// The same for what a part has read of it.
Status CheckSourceOfPart(const std::string& where, const PartRecord& record,
                         const Checkpoint& source, unsigned threads, Progress& progress) {
  SourceTensorLines then = record.source_tensors;
  then.insert(record.witnessed_tensors.begin(), record.witnessed_tensors.end());
  std::vector<const StoredTensor*> tensors;
  for (const auto& [name, line] : then) {
    if (const StoredTensor* tensor = source.Find(name); tensor != nullptr)
      tensors.push_back(tensor);
  }
  TensorHashes hashes(source);
  Status status = HashTensorsAsStage(std::move(tensors), threads, progress, hashes);
  return status.ok() ? CheckSameTensors(then, SourceLines(hashes), where) : status;
}

// What the folder was made of must be what the source is now.
Status CheckSource(const std::string& where, const Manifest& manifest,
                   const std::optional<PartRecord>& record, const Checkpoint& source,
                   unsigned threads, Progress& progress) {
  const Result<FileHashes> files = HashSideFiles(source, progress);
  if (!files.ok()) return files.status();
  Status status =
      CheckSameFiles(record ? record->source_files : SideFilesOf(manifest), *files, where);
  if (status.ok()) {
    status = record ? CheckSourceOfPart(where, *record, source, threads, progress)
                    : CheckWholeSource(where, manifest, source, threads, progress);
  }
  return status.ok() ? status : std::move(status).Hint(kReplace);
}

}  // namespace

Result<std::optional<Manifest>> FindFinishedRun(const fs::path& folder, const RunIdentity& identity,
                                                const Part& part, const Checkpoint& source,
                                                unsigned threads, Progress& progress) {
  const std::string_view mark = part.IsWhole() ? kManifestName : kPartName;
  const Result<std::optional<struct stat>> marked = LookAt(folder / mark);
  if (!marked.ok()) return marked.status();
  if (!*marked) return std::optional<Manifest>();
  Result<Manifest> manifest = part.IsWhole() ? ReadManifest(folder) : ReadPartManifest(folder);
  if (!manifest.ok()) return std::move(manifest).status();
  std::optional<RunIdentity> found = manifest->run;
  std::optional<PartRecord> record;
  if (!part.IsWhole()) {
    Result<PartRecord> of_part = ReadPartRecord(folder);
    if (!of_part.ok()) return std::move(of_part).status();
    found = of_part->part == part ? std::optional(of_part->identity) : std::nullopt;
    record = *std::move(of_part);
  }
  if (!found) return std::optional<Manifest>();
  Status status = CheckSameRun(*found, identity, folder.string());
  if (!status.ok()) return std::move(status).Hint(kReplace);
  status = CheckFiles(folder, *manifest);
  if (status.ok()) {
    status = CheckSource(folder.string(), *manifest, record, source, threads, progress);
  }
  if (!status.ok()) return status;
  return std::optional(*std::move(manifest));
}

}  // namespace prepack
