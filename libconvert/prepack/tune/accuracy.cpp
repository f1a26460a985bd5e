#include "prepack/tune/accuracy.h"

#include <cmath>
#include <string_view>

#include "prepack/base/progress.h"
#include "prepack/tune/choose.h"

namespace prepack {
namespace {

// All Gaussian rows, not the first ones alone.
const InputFigures* FiguresOf(const GemmFigures& gemm, std::string_view input) {
  const InputFigures* most = nullptr;
  for (const InputFigures& figures : gemm.inputs) {
    if (figures.input != input) continue;
    if (most == nullptr || figures.rows > most->rows) most = &figures;
  }
  return most;
}

}  // namespace

Result<SampledModule> MeasureAccuracy(const PackedModule& module, const SecondDecoder& source,
                                      const ProductOptions& options) {
  Progress unseen;
  PREPACK_TRY_ASSIGN(const ModuleProducts products,
                     MultiplyModule(module, source, options, unseen));
  const InputFigures* figures = FiguresOf(products.gemm, "recorded");
  if (figures == nullptr) figures = FiguresOf(products.gemm, "gaussian");
  if (figures == nullptr || std::isnan(figures->end_to_end.sqnr_db)) {
    return Unsupported(module.name(), "its products are zeros, which prove nothing");
  }
  return SampledModule{.module = module.name(), .sqnr_db = figures->end_to_end.sqnr_db};
}

double MeanDecibelOf(std::span<const SampledModule> modules) {
  double noise = 0;
  for (const SampledModule& module : modules) noise += NoiseOfDecibel(module.sqnr_db);
  return DecibelOfNoise(noise / static_cast<double>(modules.size()));
}

}  // namespace prepack
