#ifndef PREPACK_VERIFY_QUALITY_JUDGEMENT_H_
#define PREPACK_VERIFY_QUALITY_JUDGEMENT_H_

// What the comparison with the unquantized model says.

#include <string>

#include "convert/manifest.h"
#include "verify/module_states.h"
#include "verify/report.h"

namespace prepack {

// Judges module.quality and sets the state of the level. `missing`: why there are no figures.
void JudgeQuality(const std::string& missing, ModuleVerification& module, LevelResult& result);

// Notes modules that are far below their peers (the same projection in other layers, packed alike),
// by weights or by outputs, and sets below_peers_db.
void NoteOutliers(const Manifest& manifest, ModuleFigures& modules, LevelResult& result);

}  // namespace prepack

#endif  // PREPACK_VERIFY_QUALITY_JUDGEMENT_H_
