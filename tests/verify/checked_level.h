#pragma once

#include <set>
#include <string>
#include <vector>

#include "prepack/verify/level_pass.h"
#include "prepack/verify/report/report.h"
#include "status_matchers.h"

namespace prepack::testing {

// What one level gave.
struct CheckedLevel {
  Level which = Level::kIntegrity;
  LevelResult level = {};
  ModuleFigures figures = {};

  // Names of the modules that failed it.
  std::set<std::string> failed() const {
    std::set<std::string> names;
    for (const auto& [name, figure] : figures) {
      if (figure.state(which) == LevelState::kFailed) names.insert(name);
    }
    return names;
  }
};

// Has the levels look at every module and tensor, on two threads.
inline PassFailures RunOnTwoThreads(const PackedFolder& folder, const ModuleSample* sample,
                                    const PassLevels& levels, Progress& progress) {
  const std::vector<ModuleNeed> needs(folder.manifest().modules.size());
  LevelPass pass(folder, sample, levels,
                 {.threads = 2, .memory = uint64_t{1} << 20, .needs = needs}, progress);
  RequireOk(pass.RunRest());
  return pass.TakeFailures();
}

}  // namespace prepack::testing
