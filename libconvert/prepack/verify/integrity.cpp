// The integrity level: the bytes of the folder against the manifest, without the source. It also
// checks what the manifest cannot promise, namely that loaders take the same files and tensors as
// the manifest lists: a hidden shard or a stray file would otherwise be served unverified.

#include "prepack/verify/integrity.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/hash.h"
#include "prepack/base/memory.h"
#include "prepack/base/parallel.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/safetensors.h"
#include "prepack/io/file.h"
#include "prepack/io/output_folder.h"
#include "prepack/layouts/fingerprint.h"
#include "prepack/layouts/table.h"
#include "prepack/packed/output_hash.h"
#include "prepack/verify/measured.h"

namespace prepack {
namespace {

constexpr std::string_view kWeightsSuffix = ".safetensors";

// Some file systems, and those who copy from them, do not distinguish upper and lower case.
bool IsWeights(std::string_view name) {
  if (name.size() < kWeightsSuffix.size()) return false;
  name.remove_prefix(name.size() - kWeightsSuffix.size());
  return std::ranges::equal(name, kWeightsSuffix, {},
                            [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
}

}  // namespace

std::vector<std::string> FilesNotLoaded(const Manifest& manifest) {
  std::set<std::string> weights;
  for (const auto& [name, record] : manifest.files) {
    if (IsWeights(name)) weights.insert(name);
  }
  std::set<std::string> loaded = {"model.safetensors"};
  if (manifest.files.contains("model.safetensors.index.json")) {
    loaded.clear();
    size_t count = 0;
    const auto name = [&](size_t shard) {
      return fmt::format("model-{:05}-of-{:05}{}", shard, count, kWeightsSuffix);
    };
    // There must be as many shards as the names of the series say.
    for (count = weights.size(); count > 0 && !weights.contains(name(1)); --count) {
    }
    for (size_t shard = 1; shard <= count; ++shard) loaded.insert(name(shard));
  }
  std::vector<std::string> passed_over;
  std::ranges::set_difference(weights, loaded, std::back_inserter(passed_over));
  return passed_over;
}

namespace {

// The check of one file.
class FileCheck {
 public:
  // `hashes`: those that are known already.
  FileCheck(const PackedFolder& folder, const std::string& name, const FileRecord& record,
            const std::vector<OwnedTensor>& tensors, const ModuleSample* sample, RangeHashes hashes,
            Measurements& measured, Progress& progress, std::vector<Problem>& problems)
      : folder_(folder),
        name_(name),
        record_(record),
        tensors_(tensors),
        sample_(sample),
        measured_(measured),
        progress_(progress),
        problems_(problems),
        known_(std::move(hashes)) {}

  // Checks size and hash of the file, and the hashes of all tensors in it; of a shard, the header
  // against the manifest, too. Adds a problem for each tensor that is damaged; when the file is
  // missing or its header is damaged, one for the file and one for each module that it holds a part
  // of. With a sample, of a shard only the parts of its modules are hashed. Fails only when the
  // file cannot be read at all.

  Status Run();

 private:
  void Fail(std::string message) { problems_.push_back({"", name_, std::move(message)}); }
  void FailTensor(const OwnedTensor& owned, std::string message) {
    problems_.push_back({owned.module, owned.owner, std::move(message)});
  }
  void FailModules(const std::string& what);
  void FailFile(const std::string& what) {
    Fail(what);
    FailModules(what);
  }
  Status HashAll(const File& file);
  Status HashPieces(const File& file, const SafetensorsHeader& header);
  Result<Hash128> HashOf(const TensorRecord& tensor);
  size_t CheckTensors();
  void CheckHeader(const SafetensorsHeader& header);
  void CheckAlignment(const OwnedTensor& owned);

  const PackedFolder& folder_;
  const std::string& name_;
  const FileRecord& record_;
  const std::vector<OwnedTensor>& tensors_;
  const ModuleSample* sample_;
  Measurements& measured_;
  Progress& progress_;
  std::vector<Problem>& problems_;

  std::string file_hash_;
  const RangeHashes known_;                          // hashed ahead
  RangeHashes hashes_;                               // of what the header places
  std::optional<Result<SafetensorsHeader>> header_;  // of a shard
};

// In a mapping: the other levels read the bytes next, where they then lie.
Result<Hash128> HashTensorRecord(const PackedFolder& folder, const TensorRecord& tensor) {
  PREPACK_TRY_ASSIGN(const File* file, folder.FileOf(tensor, 0, tensor.bytes()));
  return StreamedHash().Finish({*file, tensor.offset, tensor.offset + tensor.bytes()});
}

// Are the bytes of the tensor hashed with that sample?
bool IsHashed(const OwnedTensor& owned, const ModuleSample* sample) {
  return sample == nullptr || sample->contains(owned.module);
}

// A problem that affects everything in the file.
void FileCheck::FailModules(const std::string& what) {
  std::set<std::string> modules;
  for (const OwnedTensor& owned : tensors_) {
    if (!owned.module.empty()) modules.insert(owned.module);
  }
  for (const std::string& module : modules) {
    problems_.push_back({module, fmt::format("module {}", module),
                         fmt::format("parts of it are in {}: {}", name_, what)});
  }
}

// Reads the file once, for its own hash and, if its header can be read, for those of its tensors.
// With a sample, reads only the header of a shard.
Status FileCheck::HashAll(const File& file) {
  progress_.BeginItem(name_);
  if (IsShard(name_)) header_.emplace(ReadSafetensorsHeader(file));
  if (IsShard(name_) && sample_ != nullptr) {
    file_hash_ = record_.xxh3_128;
    return {};
  }
  if (!header_ || !header_->ok()) {
    PREPACK_TRY_ASSIGN(file_hash_, HashFileTogether(file, name_, measured_, progress_));
    return {};
  }
  return HashPieces(file, **header_);
}

Status FileCheck::HashPieces(const File& file, const SafetensorsHeader& header) {
  const auto hash_of = [&](const TensorInfo& tensor, PageBuffer& buffer) -> Result<Hash128> {
    const std::pair place(header.data_start + tensor.begin, tensor.bytes());
    const std::string range = UnitOfRange(name_, place.first, place.second);
    const auto hash_range = [&]() -> Result<Hash128> {
      if (const auto known = known_.find(place); known != known_.end()) return known->second;
      return HashRange(RangeOf(file, header, tensor), buffer, progress_);
    };
    PREPACK_TRY_ASSIGN(
        const Hash128 hash,
        measured_.Of<Hash128>({.kind = "bytes", .name = range, .unit = range}, hash_range));
    hashes_.emplace(place, hash);
    return hash;
  };
  PREPACK_TRY_ASSIGN(ShardHashes hashed, HashShard(file, header, hash_of, progress_));
  file_hash_ = std::move(hashed.file.xxh3_128);
  return {};
}

Result<Hash128> FileCheck::HashOf(const TensorRecord& tensor) {
  const std::pair place(tensor.offset, tensor.bytes());
  if (const auto placed = hashes_.find(place); placed != hashes_.end()) return placed->second;
  const std::string range = UnitOfRange(tensor.file, tensor.offset, tensor.bytes());
  const auto hash_tensor = [&]() -> Result<Hash128> {
    if (const auto known = known_.find(place); known != known_.end()) return known->second;
    if (sample_ != nullptr) progress_.Add(tensor.bytes());
    Result<Hash128> hash = HashTensorRecord(folder_, tensor);
    // Whatever keeps it from being read is a problem of the tensor.
    const bool of_system = !hash.ok() && hash.status().kind() == ErrorKind::kSystem;
    return of_system ? Result<Hash128>(AsMalformed(hash.status())) : hash;
  };
  return measured_.Of<Hash128>({.kind = "tensor", .name = range, .unit = range}, hash_tensor);
}

// Returns how many tensors differ from the manifest. Tensors that the header does not place, or
// places elsewhere, are read once more.
size_t FileCheck::CheckTensors() {
  size_t damaged = 0;
  for (const OwnedTensor& owned : tensors_) {
    if (!IsHashed(owned, sample_)) continue;
    const Result<Hash128> hash = HashOf(*owned.tensor);
    if (!hash.ok()) {
      FailTensor(owned, fmt::format("cannot be read: {}", hash.status().ToString()));
      ++damaged;
    } else if (hash->Hex() != owned.tensor->xxh3_128) {
      FailTensor(owned, fmt::format("its bytes in {} are not what was written (found xxh3 {}, "
                                    "expected {})",
                                    name_, hash->Hex(), owned.tensor->xxh3_128));
      ++damaged;
    }
  }
  return damaged;
}

// The alignment that docs/packed-folder.md promises to programs that map the file.
void FileCheck::CheckAlignment(const OwnedTensor& owned) {
  constexpr uint64_t kLine = 64;
  const TensorRecord& tensor = *owned.tensor;
  const uint64_t bytes = tensor.bytes();
  const uint64_t unit = bytes % kLine == 0 ? kLine : std::max(DTypeBits(tensor.dtype) / 8, 1U);
  if (bytes == 0 || tensor.offset % unit == 0) return;
  FailTensor(owned, fmt::format("it begins at byte {} of {}, which is not a multiple of {}",
                                tensor.offset, name_, unit));
}

// The header is what loaders read: it must say what the manifest says.
void FileCheck::CheckHeader(const SafetensorsHeader& header) {
  if (header.metadata != ShardMetadata())
    Fail("the metadata in its header is not what convert writes");
  constexpr uint64_t kPage = 4096;
  if (header.data_start % kPage != 0) {
    Fail(fmt::format("its data begins at byte {}, which is not a multiple of {}", header.data_start,
                     kPage));
  }
  std::map<std::string_view, const OwnedTensor*> expected;
  for (const OwnedTensor& owned : tensors_) expected.emplace(owned.tensor->tensor, &owned);
  for (const TensorInfo& tensor : header.tensors) {
    const auto it = expected.find(tensor.name);
    if (it == expected.end()) {
      Fail(fmt::format("tensor {} is not in the manifest", Printable(tensor.name)));
      continue;
    }
    const TensorRecord& record = *it->second->tensor;
    if (record.dtype != tensor.dtype || record.shape != tensor.shape ||
        record.offset != header.data_start + tensor.begin) {
      FailTensor(*it->second, fmt::format("the header of {} gives it another dtype, shape or "
                                          "offset than the manifest",
                                          name_));
    }
    CheckAlignment(*it->second);
    expected.erase(it);
  }
  for (const auto& [name, owned] : expected) {
    FailTensor(*owned, fmt::format("the header of {} does not have it", name_));
  }
}

Status FileCheck::Run() {
  const File* file = folder_.FindFile(name_);
  if (file == nullptr) {
    FailFile("the file is missing");
    return {};
  }
  if (file->size() != record_.bytes) {
    const std::string what =
        fmt::format("wrong size (found {} bytes, expected {})", file->size(), record_.bytes);
    Fail(what);
    if (sample_ != nullptr || CheckTensors() == 0) FailModules(what);
    return {};
  }
  PREPACK_TRY(HashAll(*file));
  // Consumers rely on the hashes of tensors, so these must be right even if the file itself is
  // sound.
  if (CheckTensors() != 0) return {};
  if (file_hash_ != record_.xxh3_128) {
    FailFile(tensors_.empty() ? "its bytes are not what was written"
                              : "its header is not what was written");
    return {};
  }
  if (!IsShard(name_)) {
    if (!tensors_.empty()) FailFile("not a shard of weights");
    return {};
  }
  if (header_->ok()) {
    CheckHeader(**header_);
  } else {
    FailFile(header_->status().ToString());
  }
  return {};
}

}  // namespace

TensorsByFile GroupByFile(const Manifest& manifest) {
  TensorsByFile files;
  for (const auto& [name, module] : manifest.modules) {
    for (const auto& [part, tensor] : module.parts) {
      files[tensor.file].push_back({&tensor, name, fmt::format("module {}: part {}", name, part)});
    }
  }
  for (const TensorRecord& tensor : manifest.tensors) {
    files[tensor.file].push_back({&tensor, "", fmt::format("tensor {}", tensor.tensor)});
  }
  return files;
}

bool IsShard(const std::string& name) {
  return name.ends_with(".safetensors");
}

namespace {

// Returns the layouts that this version of prepack does not know or packs into other bytes.
std::set<std::string> CheckFingerprints(const Manifest& manifest, LevelResult& result) {
  std::set<std::string> unknown;
  for (const auto& [id, record] : manifest.layouts) {
    const Layout* layout = FindLayout(id);
    if (layout == nullptr) {
      result.Fail(fmt::format("layout {}", id), "this version of prepack does not know the layout");
      unknown.insert(id);
      continue;
    }
    const std::string today = PackingFingerprint(*layout);
    if (record.version != layout->version || record.fingerprint != today) {
      result.Fail(fmt::format("layout {}", id),
                  fmt::format("the folder has version {} with fingerprint {}, this prepack has "
                              "version {} with {}: convert the source again",
                              record.version, record.fingerprint, layout->version, today));
      unknown.insert(id);
    }
  }
  return unknown;
}

// Loaders take what they see: shards, templates, code, configs. So the folder must not hold files
// that the manifest does not list, except a README, hidden files, and the headers of shards.
void CheckStrayFiles(const PackedFolder& folder, LevelResult& result) {
  const Result<std::vector<std::string>> names = NamesIn(folder.path());
  if (!names.ok()) return result.Fail(folder.path().string(), names.status().ToString());
  for (const std::string& name : *names) {
    const bool hidden = name.starts_with(".") && !name.ends_with(".safetensors");
    if (hidden || name == kManifestName || name == "README.md") continue;
    const bool of_headers = name.ends_with(kHeadersSuffix);
    const size_t length = name.size() - (of_headers ? kHeadersSuffix.size() : 0);
    if (folder.manifest().files.contains(name.substr(0, length))) continue;
    result.Fail(Printable(name), "the manifest does not list this file");
  }
}

// If loaders ignore a file, its tensors do not exist for them, whatever the manifest says.
void CheckFilesAreLoaded(const Manifest& manifest, const TensorsByFile& tensors,
                         LevelResult& result) {
  for (const std::string& name : FilesNotLoaded(manifest)) {
    const std::string what = "loaders do not take it for weights of this model";
    result.Fail(Printable(name), what);
    for (const OwnedTensor& owned : tensors.at(name)) {
      if (owned.module.empty()) continue;
      result.problems.push_back(
          {owned.module, owned.owner, fmt::format("it lies in {}: {}", Printable(name), what)});
    }
  }
}

// Every module must have the parts that its layout makes, and loaders must take the folder as a
// checkpoint.
void CheckModules(const PackedFolder& folder, const std::set<std::string>& unknown_layouts,
                  LevelResult& result) {
  for (const auto& [name, record] : folder.manifest().modules) {
    const Result<PackedModule> module = PackedModule::Open(folder, name, record);
    if (!module.ok()) {
      result.FailModule(name, module.status().ToString());
    } else if (unknown_layouts.contains(record.layout)) {
      result.FailModule(name, fmt::format("its layout {} differs from what this version of prepack "
                                          "makes",
                                          record.layout));
    }
  }
  if (result.state == LevelState::kFailed) return;  // the reasons are already known
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  if (!checkpoint.ok()) result.Fail(folder.path().string(), checkpoint.status().ToString());
  if (!folder.manifest().files.contains("config.json")) {
    result.Fail("config.json", "the manifest does not list it");
  }
}

// How much is hashed and how much is not.
struct Coverage {
  uint64_t hashed_bytes = 0;
  uint64_t skipped_bytes = 0;
  uint64_t skipped_tensors = 0;  // that pass through
  uint64_t shards = 0;
};

Coverage CoverageOf(const Manifest& manifest, const TensorsByFile& tensors,
                    const ModuleSample* sample) {
  Coverage coverage;
  const auto add = [](uint64_t& sum, uint64_t bytes) {
    sum = CheckedAdd(sum, bytes).value_or(UINT64_MAX);
  };
  for (const auto& [name, record] : manifest.files) {
    coverage.shards += IsShard(name) ? 1U : 0U;
    if (sample == nullptr || !IsShard(name)) add(coverage.hashed_bytes, record.bytes);
  }
  if (sample == nullptr) return coverage;
  for (const auto& [file, owned_tensors] : tensors) {
    for (const OwnedTensor& owned : owned_tensors) {
      const bool hashed = IsHashed(owned, sample);
      add(hashed ? coverage.hashed_bytes : coverage.skipped_bytes, owned.tensor->bytes());
      coverage.skipped_tensors += owned.module.empty() ? 1U : 0U;
    }
  }
  return coverage;
}

void AddNotes(const Manifest& manifest, const Coverage& coverage, const ModuleSample& sample,
              LevelResult& result) {
  const auto skipped = std::ranges::count_if(
      manifest.modules, [&](const auto& module) { return !sample.contains(module.first); });
  result.notes.push_back({"", "sample",
                          fmt::format("not hashed: the parts of {} of {} modules and {} tensors "
                                      "that pass through, {} bytes in all",
                                      skipped, manifest.modules.size(), coverage.skipped_tensors,
                                      coverage.skipped_bytes)});
  result.notes.push_back({"", "sample",
                          fmt::format("of {} shards only the size and the header were compared, "
                                      "not the hash of the whole file",
                                      coverage.shards)});
}

}  // namespace

IntegrityCheck::IntegrityCheck(const PackedFolder& folder, const ModuleSample* sample,
                               Progress& progress)
    : folder_(folder), sample_(sample), progress_(progress) {}

uint64_t IntegrityCheck::bytes() const {
  const Manifest& manifest = folder_.manifest();
  return measured_->ShareOf(CoverageOf(manifest, GroupByFile(manifest), sample_).hashed_bytes);
}

void IntegrityCheck::Hash(const TensorRecord& tensor) {
  if (!measured_->Measures(UnitOfRange(tensor.file, tensor.offset, tensor.bytes()))) return;
  const Result<Hash128> hash = HashTensorRecord(folder_, tensor);
  if (!hash.ok()) return;
  progress_.Add(tensor.bytes());
  const std::lock_guard lock(mutex_);
  hashes_[tensor.file].emplace(std::pair(tensor.offset, tensor.bytes()), *hash);
}

Result<LevelResult> IntegrityCheck::Finish(unsigned threads, ModuleFigures& figures) {
  const Manifest& manifest = folder_.manifest();
  TensorsByFile tensors = GroupByFile(manifest);
  std::vector<std::string> names;
  std::vector<RangeHashes> hashes;
  for (const auto& [name, record] : manifest.files) {
    names.push_back(name);
    tensors[name];  // of files that hold none, too
    hashes.push_back(std::move(hashes_[name]));
  }
  std::vector<std::vector<Problem>> problems(names.size());
  PREPACK_TRY(ParallelFor(names.size(), threads, [&](size_t index, unsigned) {
    const std::string& name = names[index];
    return FileCheck(folder_, name, manifest.files.at(name), tensors.at(name), sample_,
                     std::move(hashes[index]), *measured_, progress_, problems[index])
        .Run();
  }));
  if (CancellationRequested()) return Interrupted(folder_.path().string());

  LevelResult result{.state = LevelState::kPassed};
  for (std::vector<Problem>& of_file : problems) {
    if (!of_file.empty()) result.state = LevelState::kFailed;
    std::ranges::move(of_file, std::back_inserter(result.problems));
  }
  CheckStrayFiles(folder_, result);
  CheckFilesAreLoaded(manifest, tensors, result);
  CheckModules(folder_, CheckFingerprints(manifest, result), result);
  if (sample_ != nullptr) {
    AddNotes(manifest, CoverageOf(manifest, tensors, sample_), *sample_, result);
  }
  SetModuleStates(Level::kIntegrity, result, sample_, figures);
  return result;
}

}  // namespace prepack
