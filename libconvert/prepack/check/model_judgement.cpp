#include "prepack/check/model_judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "prepack/check/finding_list.h"
#include "prepack/check/median.h"
#include "prepack/check/model_layout.h"
#include "prepack/check/module_judgement.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

double SizeOf(const ModuleCheck& module) {
  if (!module.statistics || module.statistics->weights < kMinWeights) return 0;
  return module.statistics->RootMeanSquare() * std::sqrt(static_cast<double>(module.k));
}

void JudgeSizes(std::vector<ModuleCheck>& modules) {
  std::map<std::string, std::vector<double>, std::less<>> peers;
  for (const ModuleCheck& module : modules) {
    if (const double size = SizeOf(module); size > 0) peers[RoleOf(module.module)].push_back(size);
  }
  for (ModuleCheck& module : modules) {
    const double size = SizeOf(module);
    if (size <= 0) continue;  // weights of zero are reported elsewhere
    if (size > kLargestSize || size < kSmallestSize) {
      module.findings.push_back(
          MakeFinding("weights-size", module.module,
                      fmt::format("the rms of the weights times the root of K is {:.3g} ({} to {} "
                                  "in working models)",
                                  size, kSmallestSize, kLargestSize)));
      continue;
    }
    const std::vector<double>& others = peers[RoleOf(module.module)];
    if (others.size() < kMinSizePeers) continue;
    const double ratio = size / Median(others);
    if (ratio < kPeerSize && ratio > 1 / kPeerSize) continue;
    module.findings.push_back(
        MakeFinding("weights-unlike-peers", module.module,
                    fmt::format("the rms of the weights is {:.3g} times the median of its {} peers",
                                ratio, others.size())));
  }
}

void FindCopies(const std::vector<ModuleCheck>& modules, std::vector<Finding>& findings) {
  std::map<std::pair<uint64_t, uint64_t>, const ModuleCheck*> first;  // by hash and K
  uint64_t copies = 0;
  const ModuleCheck* copy = nullptr;
  const ModuleCheck* original = nullptr;
  for (const ModuleCheck& module : modules) {
    if (!module.statistics || module.statistics->weights < kMinWeights ||
        module.statistics->CommonestFraction() > kConstantCodes) {
      continue;
    }
    const auto [it, added] =
        first.try_emplace({module.statistics->windows.codes_hash, module.k}, &module);
    if (added) continue;
    if (copies++ == 0) {
      copy = &module;
      original = it->second;
    }
  }
  if (copies == 0) return;
  Finding finding = MakeFinding("module-copied", copy->module,
                                fmt::format("the same codes as {}", original->module));
  finding.more = copies - 1;
  findings.push_back(std::move(finding));
}

// Scales of another module: as many as that has, and each the same. Where the codes are the same,
// too, the module is a copy.
void FindCopiedScales(std::vector<ModuleCheck>& modules) {
  std::map<std::pair<uint64_t, uint64_t>, const ModuleCheck*> first;  // by hash and K
  for (ModuleCheck& module : modules) {
    if (!module.statistics ||
        module.statistics->fine_scales < kMinGroups * module.scheme.scale_rows) {
      continue;
    }
    const auto [it, added] = first.try_emplace({module.statistics->scales_hash, module.k}, &module);
    if (added ||
        it->second->statistics->windows.codes_hash == module.statistics->windows.codes_hash) {
      continue;
    }
    module.findings.push_back(
        MakeFinding("scale-copied", module.module,
                    fmt::format("all {} scales equal those of {}, but the codes differ",
                                module.statistics->scales, it->second->module)));
  }
}

}  // namespace

void JudgeModel(std::vector<ModuleCheck>& modules, std::vector<Finding>& findings) {
  JudgeSizes(modules);
  FindCopies(modules, findings);
  FindCopiedScales(modules);
}

}  // namespace prepack
