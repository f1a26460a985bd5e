#include "verify/weight_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/cancellation.h"
#include "canonical/dequantize.h"
#include "check/model_judgement.h"
#include "check/module_judgement.h"

namespace prepack {
namespace {

// Enough for a factor of a thousand.
constexpr uint64_t kSampledRows = 8;

}  // namespace

Status NoteWeightSizes(const QuantizedModel& model, LevelResult& result) {
  DequantizeBuffers buffers;
  std::vector<float> weights;
  for (const auto& linear : model.modules) {
    if (CancellationRequested()) return Interrupted(linear->module());
    const uint64_t rows = std::min(linear->n(), kSampledRows);
    weights.resize(rows * linear->k());
    if (weights.size() < kMinWeights) continue;
    Status status = DequantizeRows(*linear, linear->n() / 2 / rows * rows, rows, buffers, weights);
    if (!status.ok()) return status;
    double squares = 0;
    for (const float weight : weights) squares += double{weight} * weight;
    // The mean of the squares times K.
    const double size = std::sqrt(squares / static_cast<double>(rows));
    if (size == 0 || (size >= kSmallestSize && size <= kLargestSize)) continue;
    result.notes.push_back(
        {linear->module(), "module " + linear->module(),
         fmt::format("the rms of the weights times the root of K is {:.3g} ({} to {} in working "
                     "models): the source, or how its config is understood, is suspect",
                     size, kSmallestSize, kLargestSize)});
  }
  return {};
}

}  // namespace prepack
