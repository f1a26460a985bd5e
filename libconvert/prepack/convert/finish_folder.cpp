// Everything in a packed folder but the shards: config.json, index, side files and manifest, the
// checks on the output path before the first byte, and the rename at the end.

#include "prepack/convert/finish_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/base/version.h"
#include "prepack/container/json_writer.h"
#include "prepack/io/file.h"
#include "prepack/io/output_folder.h"
#include "prepack/io/posix.h"
#include "prepack/packed/checkpoint_config.h"
#include "prepack/packed/manifest.h"
#include "prepack/packed/output_hash.h"
#include "prepack/packed/source_identity.h"

namespace prepack {
namespace {

std::filesystem::path Resolve(const std::filesystem::path& path) {
  // weakly_canonical does not make a relative path absolute if nothing exists there yet.
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  std::filesystem::path resolved = std::filesystem::weakly_canonical(absolute, error);
  if (error) resolved = absolute;
  // "folder/" ends in an empty component, which would not match.
  return resolved.has_filename() ? resolved : resolved.parent_path();
}

}  // namespace

Status CheckOutputPlace(const std::filesystem::path& source, const std::filesystem::path& output) {
  const std::filesystem::path from = Resolve(source);
  const std::filesystem::path to = Resolve(output);
  if (!IsInside(to, from) && !IsInside(from, to)) return {};
  return Usage(output.string(), "the output must not be the source, lie inside it or contain it")
      .Found(fmt::format("source {}", from.string()))
      .Hint("Choose a folder beside the source");
}

namespace {

// What `prepack-remote` leaves in a folder of headers, among other things {"url": ADDRESS}.
constexpr std::string_view kAddressRecord = ".prepack-source.json";
constexpr uint64_t kMostRecordBytes = uint64_t{64} << 20;

// Without a login; empty if there is none that can be told.
std::string AddressOf(const std::filesystem::path& source) {
  const Result<std::string> text = ReadTextFile(source / kAddressRecord, kMostRecordBytes);
  if (!text.ok()) return "";
  const Result<Json> record = ParseJsonStrict(*text, kAddressRecord);
  const Json* url = record.ok() ? JsonMember(*record, "url") : nullptr;
  if (url == nullptr || !url->is_string()) return "";
  std::string address = url->get<std::string>();
  const size_t host = address.find("://");
  if (host == std::string::npos) return "";
  const size_t begin = host + 3;
  const size_t at = address.find('@', begin);
  if (at < address.find('/', begin)) address.erase(begin, at + 1 - begin);
  return IsSourcePath(address) ? address : "";
}

}  // namespace

std::string PathToSource(const std::filesystem::path& source, const std::filesystem::path& output,
                         bool goes) {
  if (std::string address = goes ? AddressOf(source) : ""; !address.empty()) return address;
  std::string path = Resolve(source).lexically_relative(Resolve(output)).string();
  return IsSourcePath(path) ? path : std::string();
}

Status CheckFreeSpace(const std::filesystem::path& folder, uint64_t bytes) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || space.available >= bytes) return {};  // unknown: the reservation will show
  return SystemError(folder.parent_path().string(), "not enough space for the packed weights",
                     ENOSPC)
      .Found(fmt::format("{} bytes free", space.available))
      .Expected(fmt::format("{} bytes", bytes));
}

uint64_t BytesOnDisk(const std::filesystem::path& folder, const std::vector<std::string>& names) {
  constexpr uint64_t kBlockBytes =
      512;  // unit of st_blocks, whatever block size the file system has
  uint64_t bytes = 0;
  for (const std::string& name : names) {
    struct stat info {};
    if (lstat((folder / name).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    const uint64_t blocks = static_cast<uint64_t>(info.st_blocks) * kBlockBytes;
    bytes += std::min(blocks, static_cast<uint64_t>(info.st_size));
  }
  return bytes;
}

TensorRecord ManifestMaker::RecordOf(const OutputSlot& slot) const {
  const SafetensorsHeader& header = writers_[slot.shard].header();
  const TensorInfo& tensor = header.tensors[slot.index];
  return {.tensor = tensor.name,
          .file = shards_.names[slot.shard],
          .offset = header.data_start + tensor.begin,
          .dtype = tensor.dtype,
          .shape = tensor.shape,
          .xxh3_128 = filler_.OutputHash(slot).Hex()};
}

ModuleRecord ManifestMaker::RecordOf(const ModulePlan& plan, size_t unit) const {
  ModuleRecord record;
  record.layout = plan.chosen->id;
  record.scheme = plan.request.scheme;
  record.source_activations = SourceActivations(record.scheme, plan.linear->scheme().activations);
  record.n = plan.request.n;
  record.k = plan.request.k;
  record.stored_scale_dtype = plan.request.stored_scale_dtype;
  record.scale_rounding = ScaleRounding(*plan.chosen, plan.request);
  record.rounded_scales = filler_.rounded_scales(unit);
  record.weights_desc = plan.request.weights_desc;
  record.onednn = plan.onednn;
  record.experts = plan.linear->stacked_experts();
  record.fused = FusedMembersOf(*plan.linear);
  record.act_order = plan.HasGroupOrder();
  record.source_xxh3_128 = SourceHash(filler_.source_hashes(),
                                      plan.ReplacedTensors(filler_.source_hashes().checkpoint()));
  for (size_t part = 0; part < plan.parts.size(); ++part) {
    record.parts.emplace(plan.parts[part].name, RecordOf(shards_.units[unit].slots[part]));
  }
  return record;
}

// The units of one kind, ascending by the name of the module or tensor.
std::vector<size_t> ManifestMaker::Units(bool copied) const {
  std::vector<size_t> units;
  for (size_t i = 0; i < shards_.units.size(); ++i) {
    if ((shards_.units[i].copied != nullptr) == copied) units.push_back(i);
  }
  std::ranges::sort(units, {}, [&](size_t i) -> std::string_view {
    const OutputUnit& unit = shards_.units[i];
    return copied ? unit.copied->name : plan_.modules[unit.module].linear->module();
  });
  return units;
}

void ManifestMaker::VisitModules(const ModuleVisitor& visit) const {
  for (const size_t unit : Units(false)) {
    const ModulePlan& plan = plan_.modules[shards_.units[unit].module];
    visit(std::string(plan.linear->module()), RecordOf(plan, unit));
  }
}

void ManifestMaker::VisitTensors(const TensorVisitor& visit) const {
  for (const size_t unit : Units(true)) visit(RecordOf(shards_.units[unit].slots.front()));
}

std::vector<PackedScheme> ManifestMaker::PackedModules() const {
  const std::vector<size_t> units = Units(false);
  std::vector<PackedScheme> packed;
  packed.reserve(units.size());
  for (const size_t unit : units) {
    const ModulePlan& plan = plan_.modules[shards_.units[unit].module];
    packed.push_back(
        {plan.linear->module(), plan.chosen->id, &plan.request.scheme, plan.HasGroupOrder()});
  }
  return packed;
}

void ManifestMaker::AddLayouts(Manifest& manifest) const {
  for (const OutputUnit& unit : shards_.units) {
    if (unit.copied != nullptr) continue;
    const Layout& layout = *plan_.modules[unit.module].chosen;
    manifest.layouts.try_emplace(std::string(layout.id),
                                 LayoutRecord{layout.version, std::string(layout.fingerprint)});
  }
}

void ManifestMaker::AddReasons(Manifest& manifest) const {
  for (const ModulePlan& module : plan_.modules) {
    const std::string name(module.linear->module());
    if (module.chosen == nullptr) manifest.kept.emplace(name, module.WhyRejected());
    if (module.chosen == nullptr || module.request.scheme.code != CodeType::kBF16) continue;
    manifest.dequantized.emplace(
        name, module.dequantized ? module.WhyRejected() : "the source has it in bf16");
  }
}

void ManifestMaker::AddShards(Manifest& manifest) const {
  for (size_t i = 0; i < writers_.size(); ++i) {
    manifest.files[shards_.names[i]] = {
        writers_[i].file().size(), ShardHash(writers_[i].header_hash(), filler_.OutputHashes(i))};
  }
}

Manifest ManifestMaker::Make(const QuantizedModel& model) const {
  Manifest manifest;
  manifest.prepack_version = kVersion;
  manifest.target = plan_.target->id;
  manifest.activation_dtype = plan_.activation_dtype;
  manifest.source_format = model.format;
  manifest.source_quantization_config = JsonAsWritten(*model.quantization_config);
  AddLayouts(manifest);
  AddReasons(manifest);
  AddShards(manifest);
  return manifest;
}

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

// Records size and hash of a file in the manifest.
Status RecordFile(const std::filesystem::path& folder, const std::string& name, Progress& progress,
                  Manifest& manifest) {
  PREPACK_TRY_ASSIGN(const File file, File::OpenForRead(folder / name));
  PREPACK_TRY_ASSIGN(FileRecord record, HashFile(file, progress));
  manifest.files[name] = std::move(record);
  return {};
}

}  // namespace

Result<uint64_t> CheckSideFiles(const Checkpoint& checkpoint, std::string_view target) {
  uint64_t bytes = 0;
  for (const std::string& name : CarriedFiles(checkpoint, target)) {
    if (Printable(name, name.size() + 1) != name) {
      return Malformed(fmt::format("file {}", name), "its name is not valid UTF-8")
          .Hint("Rename the file or move it out of the checkpoint");
    }
    PREPACK_TRY_ASSIGN(const File file, File::OpenForRead(checkpoint.side_folder() / name));
    bytes += file.size();
  }
  return bytes;
}

Result<std::vector<std::string>> CopySideFiles(const Checkpoint& checkpoint,
                                               std::string_view target,
                                               const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const std::string& name : CarriedFiles(checkpoint, target)) {
    PREPACK_TRY(CopyFile(checkpoint.side_folder() / name, folder / name));
    names.push_back(name);
  }
  return names;
}

Result<FileHashes> HashSideFiles(const Checkpoint& checkpoint, std::string_view target,
                                 Progress& progress) {
  FileHashes hashes;
  for (const std::string& name : CarriedFiles(checkpoint, target)) {
    PREPACK_TRY_ASSIGN(const File file, File::OpenForRead(checkpoint.side_folder() / name));
    PREPACK_TRY_ASSIGN(FileRecord record, HashFile(file, progress));
    hashes.emplace(name, std::move(record.xxh3_128));
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

Result<std::vector<std::string>> WriteConfigs(const std::filesystem::path& folder,
                                              const std::vector<IndexedShard>& shards,
                                              const std::string& source_config,
                                              const PackedContents& contents,
                                              const Manifest& manifest) {
  std::vector<std::string> names;
  if (shards.size() > 1) names.emplace_back(kIndexName);
  names.emplace_back(kConfigName);
  for (const std::string& name : names) {
    const int removed = posix::RemoveTree(folder / name);
    if (removed < 0) return SystemError((folder / name).string(), "cannot replace it", -removed);
  }
  if (shards.size() > 1) PREPACK_TRY(WriteIndex(folder, shards));
  PREPACK_TRY(
      WriteTextFile(folder / kConfigName,
                    OutputConfigText(source_config, manifest, contents.records, contents.modules)));
  return names;
}

Status FinishFolder(const std::filesystem::path& folder, const std::vector<IndexedShard>& shards,
                    const std::string& source_config, const std::vector<std::string>& side_files,
                    const PackedContents& contents, Progress& progress, Manifest& manifest) {
  PREPACK_TRY_ASSIGN(std::vector<std::string> names,
                     WriteConfigs(folder, shards, source_config, contents, manifest));
  names.insert(names.begin(), side_files.begin(), side_files.end());
  for (const std::string& name : names) {
    PREPACK_TRY(RecordFile(folder, name, progress, manifest));
  }
  return WriteManifest(folder / kManifestName, manifest, contents.records);
}

}  // namespace prepack
