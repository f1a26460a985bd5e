// Puts parts together without reading weights. What the parts recorded about the source (hashes of
// their own tensors and of those that they read as witnesses) must not contradict each other; the
// shards get second names (hard links), so merging needs no space.

#include "prepack/convert/merge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "prepack/base/hash.h"
#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/container/json_fields.h"
#include "prepack/container/json_writer.h"
#include "prepack/convert/finish_folder.h"
#include "prepack/convert/output_shards.h"
#include "prepack/io/file.h"
#include "prepack/io/output_folder.h"
#include "prepack/io/posix.h"
#include "prepack/packed/output_hash.h"

namespace prepack {
namespace {

constexpr std::string_view kPartManifestName = "prepack-part-manifest.json";

Json RecordJson(const PartRecord& record) {
  return {{"part", record.part.Text()},
          {"run", IdentityJson(record.identity)},
          {"source_config", record.source_config},
          {"all_source_tensors", record.all_source_tensors},
          {"source_tensors", record.source_tensors},
          {"witnessed_tensors", record.witnessed_tensors},
          {"side_files", record.side_files},
          {"source_files", record.source_files}};
}

void ReadLists(JsonFields& fields, PartRecord& record) {
  record.source_tensors = fields.TextMap("source_tensors");
  record.witnessed_tensors = fields.TextMap("witnessed_tensors");
  record.source_files = fields.TextMap("source_files");
  record.side_files = fields.Texts("side_files");
  for (const std::string& file : record.side_files) {
    if (IsPlainFileName(file)) continue;
    fields.Keep(
        Malformed(fields.where(), "\"side_files\" contains an entry that is not a plain file name")
            .Found(file));
  }
}

void ReadHead(JsonFields& fields, PartRecord& record) {
  const std::string part = fields.Text("part");
  if (const Result<Part> parsed = ParsePart(part); parsed.ok()) {
    record.part = *parsed;
  } else {
    fields.Keep(Malformed(fields.where(), "field \"part\" is not a part").Found(part));
  }
  record.identity = fields.Take(ReadIdentity(*fields.Object("run"), fields.where()));
  record.source_config = fields.Text("source_config");
  const Json config = fields.Take(ParseJsonStrict(record.source_config,
                                                  fmt::format("{}: source_config", fields.where()),
                                                  {.python_numbers = true}));
  if (!config.is_object()) {
    fields.Keep(Malformed(fields.where(), "field \"source_config\" is not an object"));
  }
  record.all_source_tensors = fields.Uint("all_source_tensors");
}

}  // namespace

Status WritePartRecord(const std::filesystem::path& folder, const PartRecord& record,
                       const Manifest& manifest, const ManifestRecords& records) {
  PREPACK_TRY(WriteManifest(folder / kPartManifestName, manifest, records));
  return WriteTextFile(folder / kPartName, PythonJsonText(RecordJson(record)));
}

Result<PartRecord> ReadPartRecord(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kPartName;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return Usage(folder.string(), fmt::format("this folder is not a part: it has no {}", kPartName))
        .Hint("`prepack convert --part I/N` makes one");
  }
  PREPACK_TRY_ASSIGN(const std::string text, ReadTextFile(path, kMaxManifestBytes));
  const std::string where = path.string();
  PREPACK_TRY_ASSIGN(const Json json, ParseJsonStrict(text, where, {.python_numbers = true}));
  PartRecord record;
  Status status;
  JsonFields fields(json, where, status);
  ReadHead(fields, record);
  ReadLists(fields, record);
  if (!status.ok()) return status;
  return record;
}

Result<Manifest> ReadPartManifest(const std::filesystem::path& folder) {
  return ReadManifestFile(folder / kPartManifestName);
}

namespace fs = std::filesystem;
namespace {

// A shard of a part, and its name in the packed folder.
struct MergedShard {
  fs::path from;
  std::string_view suffix;  // of the file that is here: kHeadersSuffix, or none
  std::string name;
  SafetensorsHeader header;
  FileRecord record;
};

// The part that a folder name stands for: "OUT.part-00003-of-00008", with OUT = `output_name`.
std::optional<Part> PartOfName(const std::string& name, const std::string& output_name) {
  const std::string prefix = output_name + ".part-";
  constexpr std::string_view kOf = "-of-";
  const size_t of = name.rfind(kOf);
  if (!name.starts_with(prefix) || of == std::string::npos || of < prefix.size()) return {};
  Result<Part> part = ParsePart(fmt::format("{}/{}", name.substr(prefix.size(), of - prefix.size()),
                                            name.substr(of + kOf.size())));
  if (!part.ok()) return {};
  return *part;
}

// How many parts the output has, from the names of the existing ones. All of them must exist.
Result<uint32_t> CountParts(const fs::path& output) {
  std::set<uint32_t> counts;
  std::set<uint32_t> found;
  const fs::path parent = output.has_parent_path() ? output.parent_path() : fs::path(".");
  PREPACK_TRY_ASSIGN(const std::vector<std::string> names, NamesIn(parent));
  for (const std::string& name : names) {
    const std::optional<Part> part = PartOfName(name, output.filename().string());
    if (!part) continue;
    counts.insert(part->count);
    found.insert(part->index);
  }
  if (counts.empty()) {
    return Usage(output.string(), "no parts found next to it")
        .Expected(PartFolder(output, {}).string() + " and so on")
        .Hint("`prepack convert -o OUT --part I/N` makes them");
  }
  if (counts.size() > 1) {
    return Usage(output.string(), "these are parts of different conversions")
        .Found(fmt::format("parts out of {}", fmt::join(counts, ", out of ")))
        .Hint("Remove the parts that you do not want");
  }
  std::vector<uint32_t> missing;
  for (uint32_t i = 1; i <= *counts.begin(); ++i) {
    if (!found.contains(i)) missing.push_back(i);
  }
  if (missing.empty()) return *counts.begin();
  return Usage(output.string(), "parts are missing")
      .Found(fmt::format("{} of {}", found.size(), *counts.begin()))
      .Expected(fmt::format("also {}", fmt::join(missing, ", ")))
      .Hint("Run `prepack convert --part I/N` for each of them");
}

// A tensor of the source, as the parts have seen it.
struct SeenTensor {
  std::string line;
  bool is_used = false;  // a part was made from it, instead of only reading it
};

class Merger {
 public:
  Merger(const MergeOptions& options, fs::path output, uint32_t parts, Progress& progress)
      : options_(options), output_(std::move(output)), parts_(parts), progress_(progress) {}

  // Reads all parts and checks that they belong together.
  Status ReadParts();
  Status WriteFolder(const fs::path& folder);
  Status RemoveParts() const;
  MergeReport Report() const;

 private:
  fs::path FolderOf(uint32_t index) const { return PartFolder(output_, {index, parts_}); }
  Status ReadPart(uint32_t index);
  Status AddSources(const PartRecord& record, const fs::path& folder);
  Status AddManifest(Manifest manifest, const fs::path& folder);
  Status AddShard(const fs::path& path, const FileRecord& record);
  Status CheckShard(const File& file, const SafetensorsHeader& header,
                    const FileRecord& record) const;
  void NameShards();
  void Rename(TensorRecord& tensor) const { tensor.file = names_.at(tensor.file); }

  const MergeOptions& options_;
  const fs::path output_;
  const uint32_t parts_;
  Progress& progress_;

  std::optional<PartRecord> first_;
  std::map<std::string, SeenTensor> sources_;
  Manifest manifest_;
  // While parts are read, the file of a tensor is "FOLDER/SHARD".
  std::map<std::string, std::string> hashes_;  // tensor → hash
  std::vector<MergedShard> shards_;
  std::map<std::string, std::string> names_;  // "FOLDER/SHARD" → name in the packed folder
};

Status Merger::ReadParts() {
  for (uint32_t index = 1; index <= parts_; ++index) {
    PREPACK_TRY(ReadPart(index));
  }
  SourceTensorLines used;
  for (auto& [name, seen] : sources_) {
    if (seen.is_used) used.emplace(name, std::move(seen.line));
  }
  sources_.clear();
  if (used.size() != first_->all_source_tensors) {
    return Malformed(output_.string(), "the parts do not make up the source")
        .Found(fmt::format("{} tensors", used.size()))
        .Expected(fmt::format("{}", first_->all_source_tensors));
  }
  NameShards();
  manifest_.source_fingerprint = FingerprintOfLines(used);
  return {};
}

Status Merger::ReadPart(uint32_t index) {
  const fs::path folder = FolderOf(index);
  PREPACK_TRY_ASSIGN(PartRecord record, ReadPartRecord(folder));
  if (record.part != Part{index, parts_}) {
    return Usage(folder.string(), "the folder was renamed: it is another part")
        .Found(record.part.Text())
        .Expected(Part{index, parts_}.Text());
  }
  if (first_) {
    Status status = CheckSameRun(record.identity, first_->identity, folder.string());
    if (status.ok()) {
      status = CheckSameFiles(record.source_files, first_->source_files, folder.string());
    }
    if (!status.ok()) {
      return std::move(status).Hint(
          fmt::format("Convert this part again, as {} was", FolderOf(1).filename().string()));
    }
  }
  PREPACK_TRY_ASSIGN(Manifest manifest, ReadPartManifest(folder));
  PREPACK_TRY(AddSources(record, folder));
  PREPACK_TRY(AddManifest(std::move(manifest), folder));
  if (!first_) first_ = std::move(record);
  return {};
}

// Parts that were made from copies of the source, or at different times, may have seen another one.
Status Merger::AddSources(const PartRecord& record, const fs::path& folder) {
  const auto add = [&](const SourceTensorLines& lines, bool is_used) -> Status {
    for (const auto& [name, line] : lines) {
      SeenTensor& seen = sources_.try_emplace(name, SeenTensor{.line = line}).first->second;
      seen.is_used = seen.is_used || is_used;
      if (seen.line == line) continue;
      return Malformed(fmt::format("{}: tensor {}", folder.string(), Printable(name)),
                       "another part was made from another source")
          .Found(Printable(line))
          .Expected(Printable(seen.line))
          .Hint("Convert all parts of the old source again, with --force");
    }
    return {};
  };
  PREPACK_TRY(add(record.source_tensors, true));
  return add(record.witnessed_tensors, false);
}

Status Merger::AddManifest(Manifest manifest, const fs::path& folder) {
  const auto twice = [&](const std::string& name) {
    return Malformed(fmt::format("{}: {}", folder.string(), Printable(name)),
                     "another part has it as well");
  };
  const auto place = [&](TensorRecord& tensor) {
    tensor.file = (folder / tensor.file).string();
    return hashes_.emplace(tensor.tensor, tensor.xxh3_128).second;
  };
  if (!first_) {
    Manifest head = manifest;
    head.modules.clear();
    head.tensors.clear();
    head.files.clear();
    manifest_ = std::move(head);
  }
  for (auto& [name, module] : manifest.modules) {
    for (auto& [part, tensor] : module.parts) {
      if (!place(tensor)) return twice(tensor.tensor);
    }
    if (!manifest_.modules.emplace(name, std::move(module)).second) return twice(name);
  }
  for (TensorRecord& tensor : manifest.tensors) {
    if (!place(tensor)) return twice(tensor.tensor);
    manifest_.tensors.push_back(std::move(tensor));
  }
  manifest_.layouts.merge(manifest.layouts);
  for (const auto& [name, record] : manifest.files) {
    PREPACK_TRY(AddShard(folder / name, record));
  }
  return {};
}

Status Merger::AddShard(const fs::path& path, const FileRecord& record) {
  PREPACK_TRY_ASSIGN(const File file, File::OpenWeights(path));
  if (file.size() != record.bytes) {
    return Malformed(path.string(), "the shard is not what was written: its size differs")
        .Found(fmt::format("{} bytes", file.size()))
        .Expected(fmt::format("{}", record.bytes));
  }
  PREPACK_TRY_ASSIGN(SafetensorsHeader header, ReadSafetensorsHeader(file));
  PREPACK_TRY(CheckShard(file, header, record));
  shards_.push_back(
      {path, file.headers_only() ? kHeadersSuffix : "", "", std::move(header), record});
  return {};
}

// The header must be the one that was written, and list the tensors of the manifest.
Status Merger::CheckShard(const File& file, const SafetensorsHeader& header,
                          const FileRecord& record) const {
  PageBuffer buffer;
  PREPACK_TRY_ASSIGN(const Hash128 of_header,
                     HashRange({file, 0, header.data_start}, buffer, progress_));
  std::vector<Hash128> of_tensors;
  for (const TensorInfo& tensor : header.tensors) {
    const auto known = hashes_.find(tensor.name);
    if (known == hashes_.end()) continue;
    // A text that is not a hash is left out, which makes the hash of the shard differ.
    const std::optional<Hash128> hash = ParseHash128(known->second);
    if (hash) of_tensors.push_back(*hash);
  }
  if (ShardHash(of_header, of_tensors) == record.xxh3_128) return {};
  return Malformed(file.path().string(), "the header of the shard is not what was written")
      .Hint("Convert this part again, with --force");
}

void Merger::NameShards() {
  for (size_t i = 0; i < shards_.size(); ++i) {
    shards_[i].name = ShardName(i, shards_.size());
    names_.emplace(shards_[i].from.string(), shards_[i].name);
  }
  for (auto& [name, module] : manifest_.modules) {
    for (auto& [part, tensor] : module.parts) Rename(tensor);
  }
  for (TensorRecord& tensor : manifest_.tensors) Rename(tensor);
  std::ranges::sort(manifest_.tensors, {}, &TensorRecord::tensor);
}

// Gives the file a second name, or copies it if the file system has no hard links.
Status LinkOrCopy(const fs::path& from, const fs::path& to) {
  const int result = posix::Link(from, to);
  if (result >= 0) return {};
  constexpr std::array kNoLinks = {-EXDEV, -EPERM, -EOPNOTSUPP, -ENOSYS, -EMLINK};
  if (std::ranges::find(kNoLinks, result) != kNoLinks.end()) return CopyFile(from, to);
  return SystemError(to.string(), fmt::format("cannot link {} to it", from.string()), -result);
}

Status Merger::WriteFolder(const fs::path& folder) {
  std::vector<IndexedShard> indexed;
  for (const MergedShard& shard : shards_) {
    fs::path from = shard.from;
    fs::path to = folder / shard.name;
    PREPACK_TRY(LinkOrCopy(from += shard.suffix, to += shard.suffix));
    indexed.push_back({shard.name, &shard.header});
    manifest_.files[shard.name] = shard.record;
  }
  for (const std::string& name : first_->side_files) {
    PREPACK_TRY(CopyFile(FolderOf(1) / name, folder / name));
  }
  Status status =
      FinishFolder(folder, indexed, first_->source_config, first_->side_files,
                   {OwnRecords(manifest_), PackedSchemes(manifest_)}, progress_, manifest_);
  if (!status.ok()) return status;
  return CheckSameFiles(SideFilesOf(manifest_), first_->source_files, FolderOf(1).string());
}

Status Merger::RemoveParts() const {
  if (options_.keep_parts) return {};
  for (uint32_t index = 1; index <= parts_; ++index) {
    const fs::path folder = FolderOf(index);
    const int result = posix::RemoveTree(folder);
    if (result < 0) {
      return SystemError(folder.string(),
                         "the packed folder is in place, but this part could not be removed",
                         -result);
    }
  }
  return {};
}

MergeReport Merger::Report() const {
  MergeReport report;
  report.target = manifest_.target;
  report.parts = parts_;
  report.packed_modules = manifest_.modules.size();
  for (const auto& [name, module] : manifest_.modules) ++report.layouts[module.layout];
  report.copied_tensors = manifest_.tensors.size();
  for (const MergedShard& shard : shards_) {
    const fs::path part = shard.from.parent_path().filename();
    report.shards.push_back({shard.name, (part / shard.from.filename()).string()});
    report.output_bytes += shard.record.bytes;
  }
  report.source_fingerprint = manifest_.source_fingerprint;
  return report;
}

}  // namespace

Result<MergeReport> Merge(const MergeOptions& options, Progress& progress) {
  const fs::path output = WithoutTrailingSlashes(options.output);
  PREPACK_TRY_ASSIGN(const uint32_t parts, CountParts(output));
  PREPACK_TRY_ASSIGN(OutputFolder folder, OutputFolder::Create(output, options.replace));
  Merger merger(options, output, parts, progress);
  PREPACK_TRY(merger.ReadParts());
  PREPACK_TRY(merger.WriteFolder(folder.path()));
  PREPACK_TRY(folder.Commit());
  PREPACK_TRY(merger.RemoveParts());
  return merger.Report();
}

}  // namespace prepack
