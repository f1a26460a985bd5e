#ifndef PREPACK_VERIFY_MODULE_STATES_H_
#define PREPACK_VERIFY_MODULE_STATES_H_

#include <map>
#include <set>
#include <string>

#include "verify/report.h"

namespace prepack {

using ModuleFigures = std::map<std::string, ModuleVerification>;  // by name

// Names of the modules that stand for all; null: all do.
using ModuleSample = std::set<std::string>;

inline bool InSample(const ModuleSample* sample, const std::string& module) {
  return sample == nullptr || sample->contains(module);
}

// What a level that ran says of each module: failed where a problem names it, else passed, if it is
// in the sample; what is not, is not looked at. A problem that is of no module is the level's
// alone.
void SetModuleStates(Level level, const LevelResult& result, const ModuleSample* sample,
                     ModuleFigures& figures);

}  // namespace prepack

#endif  // PREPACK_VERIFY_MODULE_STATES_H_
