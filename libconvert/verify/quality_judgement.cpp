#include "verify/quality_judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "check/baseline.h"

namespace prepack {
namespace {

// A figure of a module: by weights, or by outputs.
using QualityFigure = std::optional<double> QualityFigures::*;

void NoteOutliersOf(QualityFigure figure, const char* what, const Manifest& manifest,
                    ModuleFigures& modules, LevelResult& result) {
  std::vector<PeerFigure> peers;
  std::vector<ModuleVerification*> compared;
  for (auto& [name, module] : modules) {
    if (!module.quality || !((*module.quality).*figure)) continue;
    peers.push_back({.peers = PeersOf(name, manifest.modules.at(name).scheme),
                     .sqnr_db = *((*module.quality).*figure),
                     .outlier_below_db = {}});
    compared.push_back(&module);
  }
  MarkOutliers(peers);
  for (size_t i = 0; i < peers.size(); ++i) {
    if (!peers[i].outlier_below_db) continue;
    std::optional<double>& below = compared[i]->quality->below_peers_db;
    below = std::max(below.value_or(0), *peers[i].outlier_below_db);
    result.notes.push_back(
        {compared[i]->module, "module " + compared[i]->module,
         fmt::format("an outlier: its {} SQNR of {:.1f} dB is {:.1f} dB below the median of its "
                     "peers",
                     what, peers[i].sqnr_db, *peers[i].outlier_below_db)});
  }
}

}  // namespace

void JudgeQuality(const std::string& missing, ModuleVerification& module, LevelResult& result) {
  if (!module.quality) {
    result.problems.push_back({module.module, "module " + module.module, missing});
    return;
  }
  const double decibel = module.quality->weight_sqnr_db.value_or(NAN);
  const std::string where = "module " + module.module;
  if (std::isnan(decibel)) {
    result.problems.push_back({module.module, where,
                               "the comparison proves nothing: the unquantized weight is zero or "
                               "not finite"});
    return;
  }
  module.state(Level::kQuality) = LevelState::kPassed;
  if (decibel >= kUnrelatedDb) return;
  // No failure: quantizers that fold scales into the layers before (SmoothQuant, AWQ) do this to
  // perfect weights.
  result.notes.push_back(
      {module.module, where,
       fmt::format(
           "it is as far from the unquantized model as other weights would be (found {:.1f} "
           "dB, expected at least {:.1f} dB), unless its quantizer has folded scales into "
           "the layers before",
           decibel, kUnrelatedDb)});
}

void NoteOutliers(const Manifest& manifest, ModuleFigures& modules, LevelResult& result) {
  NoteOutliersOf(&QualityFigures::weight_sqnr_db, "weight", manifest, modules, result);
  NoteOutliersOf(&QualityFigures::output_sqnr_db, "output", manifest, modules, result);
}

}  // namespace prepack
