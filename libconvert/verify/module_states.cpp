#include "verify/module_states.h"

namespace prepack {

void SetModuleStates(Level level, const LevelResult& result, const ModuleSample* sample,
                     ModuleFigures& figures) {
  for (auto& [name, figure] : figures) {
    figure.looked_at = InSample(sample, name);
    if (figure.looked_at) figure.state(level) = LevelState::kPassed;
  }
  for (const Problem& problem : result.problems) {
    const auto figure = figures.find(problem.module);
    if (figure != figures.end()) figure->second.state(level) = LevelState::kFailed;
  }
}

}  // namespace prepack
