#include "verify/product_memory.h"

#include <algorithm>

#include "base/dtype.h"
#include "canonical/panel.h"
#include "verify/gemm_inputs.h"
#include "verify/product_cut.h"

namespace prepack {
namespace {

// The shape of what is multiplied at a time.
struct Pass {
  uint64_t k = 0;
  uint64_t inputs = 0;  // of a slab
  uint64_t channels = 0;
  uint64_t groups = 0;
  uint64_t dense = 0;  // rows of activations
  uint64_t rows = 0;
  uint64_t row_bytes = 0;  // of codes of all input channels
  bool slabs = false;
  bool scattered = false;  // the input channels of a slab lie anywhere
};

Pass PassOf(const PackRequest& request, const ProductCut& cut, bool recorded) {
  const uint64_t dense = kGaussianRows + kOutlierRows + (recorded ? kMaxRecordedRows : 0);
  const bool slabs = cut.slab_inputs != cut.k;
  return {.k = cut.k,
          .inputs = cut.slab_inputs,
          .channels = std::min(cut.channels, request.n),
          .groups = request.groups(),
          .dense = dense,
          .rows = dense + kMaxHotRows,
          .row_bytes = PanelRowBytes(request.scheme.code, cut.k),
          .slabs = slabs,
          .scattered = slabs && request.reordered};
}

// Activations: before and after rounding, as the model multiplies them, and in f64 for the truth;
// the order of the input channels; and, while they are made, those of the model in f64, or a second
// model.
constexpr uint64_t kBytesOfDense = sizeof(double) + sizeof(double);
constexpr uint64_t kBytesOfRow = 2 * sizeof(float);
constexpr uint64_t kBytesOfColumn = 3 * sizeof(uint64_t) + kSecondRows * sizeof(float);

uint64_t MemoryOfInputs(const Pass& pass) {
  const uint64_t hot = kMaxHotRows * (pass.inputs / kMaxHotRows / 16 + 1) * 64;
  return pass.inputs * (pass.dense * kBytesOfDense + pass.rows * kBytesOfRow + kBytesOfColumn) +
         hot + pass.k / 8;
}

// All parts but the weight, as they are and as floats.
uint64_t MemoryOfParts(const PackedModule& packed) {
  uint64_t bytes = 0;
  for (const PartSpec& part : packed.parts()) {
    if (part.role == PartRole::kWeight || part.role == PartRole::kInputOrder) continue;
    bytes += TensorBytes(part.dtype, part.shape).value_or(0);
    uint64_t elements = 1;
    for (const uint64_t size : part.shape) elements *= size;
    bytes += 2 * elements * sizeof(float);
  }
  return bytes + packed.request().n * 3 * sizeof(double);
}

// Outputs of oneDNN's primitive, and what it is fed with.
uint64_t MemoryOfPrimitive(const PackedModule& packed, const Pass& pass, bool repack) {
  const uint64_t n = packed.request().n;
  const uint64_t rows = kGaussianRows + 2 * kSecondRows + 1 + pass.rows;  // of all batches
  const uint64_t fed =
      pass.slabs ? std::clamp<uint64_t>(kPaddedInputs / pass.k, 1, kSecondRows) : kMaxRecordedRows;
  const uint64_t outputs = std::min(kMaxOutputs, rows * n) * sizeof(float);
  return outputs + fed * (pass.k * 12 + n * sizeof(float)) + (repack ? 2 * pass.k * n : 0);
}

// Weights in f64, as steps and as floats, twice; what they are decoded from; scales; outputs.
uint64_t MemoryOfThread(const PackedModule& packed, const Pass& pass,
                        const ProductOptions& options) {
  const uint64_t weights = pass.channels * pass.inputs;
  uint64_t bytes = weights * (sizeof(double) + 3 * sizeof(float) + 4) +
                   pass.inputs * 3 * sizeof(uint64_t) +
                   pass.channels * pass.groups * (2 * sizeof(double) + 3 * sizeof(float)) +
                   pass.rows * pass.channels * (3 * sizeof(double) + 3 * sizeof(float));
  // Strips hold all input channels.
  const TileCut cut = packed.layout().cut(packed.request());
  if (pass.slabs && !cut.by_inputs) bytes += cut.rows * (pass.row_bytes + 16 * pass.groups);
  if (pass.scattered) bytes += 8 * pass.k * 3 * sizeof(float) + pass.k * 3 * sizeof(uint64_t);
  if (options.baseline != nullptr) {
    bytes += weights * (sizeof(double) + (pass.slabs ? 0 : sizeof(float))) +
             pass.k * sizeof(float) + pass.rows * pass.channels * sizeof(double);
  }
  return bytes;
}

}  // namespace

MemoryNeed MemoryOfProducts(const PackedModule& packed, const ProductOptions& options) {
  const Result<ProductCut> cut = CutProducts(packed);
  if (!cut.ok()) return {};
  const Pass pass = PassOf(packed.request(), *cut, options.recorded != nullptr);
  MemoryNeed need{.shared = MemoryOfInputs(pass) + MemoryOfParts(packed),
                  .per_thread = MemoryOfThread(packed, pass, options)};
  if (options.engine != nullptr && IsOneDnnLayout(packed.layout())) {
    need.shared += MemoryOfPrimitive(packed, pass, options.repack);
  }
  // Given back before threads begin.
  const uint64_t while_made = pass.inputs * pass.rows * sizeof(double);
  need.shared += while_made - std::min(while_made, need.per_thread);
  return need;
}

}  // namespace prepack
