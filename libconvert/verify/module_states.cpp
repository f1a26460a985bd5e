#include "verify/module_states.h"

namespace prepack {

void SetModuleStates(Level level, const LevelResult& result, const ModuleSample* sample,
                     ModuleFigures& figures) {
  for (auto& [name, figure] : figures) {
    figure.looked_at = InSample(sample, name);
    figure.state(level) = figure.looked_at ? LevelState::kPassed : LevelState::kNotRun;
  }
  for (const Problem& problem : result.problems) {
    const auto figure = figures.find(problem.module);
    if (figure != figures.end()) figure->second.state(level) = LevelState::kFailed;
  }
}

}  // namespace prepack
