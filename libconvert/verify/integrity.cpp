#include "verify/integrity.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include "base/cancellation.h"
#include "base/checked.h"
#include "base/parallel.h"
#include "container/checkpoint.h"
#include "io/folder_names.h"
#include "io/output_folder.h"
#include "layouts/fingerprint.h"
#include "layouts/table.h"
#include "verify/file_integrity.h"
#include "verify/loaded_files.h"

namespace prepack {
namespace {

// Returns the layouts whose bytes this version of prepack does not know or makes otherwise.
std::set<std::string> CheckFingerprints(const Manifest& manifest, Isa isa, LevelResult& result) {
  std::set<std::string> unknown;
  for (const auto& [id, record] : manifest.layouts) {
    const Layout* layout = FindLayout(id);
    if (layout == nullptr) {
      result.Fail(fmt::format("layout {}", id), "this version of prepack does not know it");
      unknown.insert(id);
      continue;
    }
    const std::string today = PackingFingerprint(*layout, isa);
    if (record.version != layout->version || record.fingerprint != today) {
      result.Fail(fmt::format("layout {}", id),
                  fmt::format("it was written as version {} with fingerprint {}, today it is "
                              "version {} with {}: convert the source again",
                              record.version, record.fingerprint, layout->version, today));
      unknown.insert(id);
    }
  }
  return unknown;
}

// Loaders take what they see: shards, templates, code, configs. What the manifest does not know
// must not lie there, but for a README and what is hidden.
void CheckStrayFiles(const PackedFolder& folder, LevelResult& result) {
  const Result<std::vector<std::string>> names = NamesIn(folder.path());
  if (!names.ok()) return result.Fail(folder.path().string(), names.status().ToString());
  for (const std::string& name : *names) {
    const bool hidden = name.starts_with(".") && !name.ends_with(".safetensors");
    if (hidden || name == kManifestName || name == "README.md") continue;
    if (folder.manifest().files.contains(name)) continue;
    result.Fail(Printable(name), "the folder holds a file that the manifest does not know");
  }
}

// Tensors in a file that loaders pass over are not there for them, whatever the manifest says.
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

// Every module must be what its layout makes, and the folder one that loaders take as a checkpoint.
void CheckModules(const PackedFolder& folder, const std::set<std::string>& unknown_layouts, Isa isa,
                  LevelResult& result) {
  for (const auto& [name, record] : folder.manifest().modules) {
    const Result<PackedModule> module = PackedModule::Open(folder, name, record, isa);
    if (!module.ok()) {
      result.FailModule(name, module.status().ToString());
    } else if (unknown_layouts.contains(record.layout)) {
      result.FailModule(name, fmt::format("its layout {} is not what this version of prepack "
                                          "makes",
                                          record.layout));
    }
  }
  if (result.state == LevelState::kFailed) return;  // the reasons are there already
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  if (!checkpoint.ok()) result.Fail(folder.path().string(), checkpoint.status().ToString());
  if (!folder.manifest().files.contains("config.json")) {
    result.Fail("config.json", "the manifest does not list it");
  }
}

// What is hashed, and what is not.
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
  result.notes.push_back(
      {"", "sample",
       fmt::format("the parts of {} of {} modules and {} tensors that pass through, {} bytes in "
                   "all, were not hashed",
                   skipped, manifest.modules.size(), coverage.skipped_tensors,
                   coverage.skipped_bytes)});
  result.notes.push_back(
      {"", "sample",
       fmt::format("of {} shards the size and what the header says were compared, but no hash of "
                   "the whole file",
                   coverage.shards)});
}

}  // namespace

Result<LevelResult> CheckIntegrity(const PackedFolder& folder, const ModuleSample* sample, Isa isa,
                                   unsigned threads, Progress& progress, ModuleFigures& figures) {
  const Manifest& manifest = folder.manifest();
  TensorsByFile tensors = GroupByFile(manifest);
  std::vector<std::string> names;
  for (const auto& [name, record] : manifest.files) {
    names.push_back(name);
    tensors[name];  // of files that hold none, too
  }
  const Coverage coverage = CoverageOf(manifest, tensors, sample);
  progress.Begin("integrity", coverage.hashed_bytes);
  std::vector<std::vector<Problem>> problems(names.size());
  Status status = ParallelFor(names.size(), threads, [&](size_t index, unsigned) {
    const std::string& name = names[index];
    return CheckFile(folder, name, manifest.files.at(name), tensors.at(name), sample, progress,
                     problems[index]);
  });
  if (!status.ok()) return status;
  if (CancellationRequested()) return Interrupted(folder.path().string());

  LevelResult result{.state = LevelState::kPassed};
  for (std::vector<Problem>& of_file : problems) {
    if (!of_file.empty()) result.state = LevelState::kFailed;
    std::ranges::move(of_file, std::back_inserter(result.problems));
  }
  CheckStrayFiles(folder, result);
  CheckFilesAreLoaded(manifest, tensors, result);
  CheckModules(folder, CheckFingerprints(manifest, isa, result), isa, result);
  if (sample != nullptr) AddNotes(manifest, coverage, *sample, result);
  SetModuleStates(Level::kIntegrity, result, sample, figures);
  return result;
}

}  // namespace prepack
