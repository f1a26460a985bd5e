#ifndef PREPACK_TESTS_VERIFY_CHECKED_LEVEL_H_
#define PREPACK_TESTS_VERIFY_CHECKED_LEVEL_H_

#include <set>
#include <string>

#include "prepack/verify/report/report.h"

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

}  // namespace prepack::testing

#endif  // PREPACK_TESTS_VERIFY_CHECKED_LEVEL_H_
