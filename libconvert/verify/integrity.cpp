#include "verify/integrity.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include "base/checked.h"
#include "base/parallel.h"
#include "container/checkpoint.h"
#include "layouts/fingerprint.h"
#include "layouts/table.h"
#include "verify/file_integrity.h"

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

// Loaders take every shard they see: one that the manifest does not know must not lie there.
void CheckStrayShards(const PackedFolder& folder, LevelResult& result) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder.path(), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (entry->path().extension() == ".safetensors" && !folder.manifest().files.contains(name)) {
      result.Fail(Printable(name), "the folder holds a shard that the manifest does not know");
    }
  }
  if (error) result.Fail(folder.path().string(), "cannot list the folder: " + error.message());
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

}  // namespace

Result<LevelResult> CheckIntegrity(const PackedFolder& folder, Isa isa, unsigned threads,
                                   Progress& progress, ModuleFigures& figures) {
  const Manifest& manifest = folder.manifest();
  std::vector<std::string> names;
  uint64_t total = 0;
  for (const auto& [name, record] : manifest.files) {
    names.push_back(name);
    total = CheckedAdd(total, record.bytes).value_or(UINT64_MAX);
  }
  progress.Begin("integrity", total);
  TensorsByFile tensors = GroupByFile(manifest);
  for (const std::string& name : names) tensors[name];  // of files that hold none, too
  std::vector<std::vector<Problem>> problems(names.size());
  Status status = ParallelFor(names.size(), threads, [&](size_t index, unsigned) {
    const std::string& name = names[index];
    return CheckFile(folder, name, manifest.files.at(name), tensors.at(name), progress,
                     problems[index]);
  });
  if (!status.ok()) return status;

  LevelResult result{.state = LevelState::kPassed};
  for (std::vector<Problem>& of_file : problems) {
    if (!of_file.empty()) result.state = LevelState::kFailed;
    std::ranges::move(of_file, std::back_inserter(result.problems));
  }
  CheckStrayShards(folder, result);
  CheckModules(folder, CheckFingerprints(manifest, isa, result), isa, result);
  SetModuleStates(Level::kIntegrity, result, nullptr, figures);
  return result;
}

}  // namespace prepack
