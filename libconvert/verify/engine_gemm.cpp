#include "verify/engine_gemm.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "canonical/panel_shape.h"

namespace prepack {
namespace {

struct Buffers {
  std::vector<std::byte> packed;
  std::vector<std::byte> codes;
  std::vector<float> scales;
  std::vector<uint8_t> zero_points;
  std::vector<float> y;
};

// Output channels [n0, n0 + rows) of the folder, into buffers.y.
Result<GemmInfo> RunPanel(const PackedModule& packed, std::span<const float> x, GemmEngine& engine,
                          std::mutex& engine_mutex, uint64_t n0, uint64_t rows, Buffers& buffers) {
  const PackRequest& request = packed.request();
  buffers.codes.resize(
      PanelBytes(request.scheme.code, {.n0 = n0, .rows = rows, .k0 = 0, .cols = request.k}));
  buffers.scales.resize(rows * request.groups());
  buffers.zero_points.resize(buffers.scales.size());
  buffers.y.resize(kGemmRows * rows);
  Status status = packed.ReadCodes(n0, rows, buffers.packed, buffers.codes);
  if (status.ok()) status = packed.ReadScales(n0, rows, buffers.packed, buffers.scales);
  if (status.ok()) status = packed.ReadZeroPoints(n0, rows, buffers.packed, buffers.zero_points);
  if (!status.ok()) return status;
  const W4A16Problem problem{.m = kGemmRows,
                             .n = rows,
                             .k = request.k,
                             .group_size = request.scheme.group_size,
                             .x = x,
                             .codes = buffers.codes,
                             .scales = buffers.scales,
                             .zero_points = request.scheme.symmetric
                                                ? std::span<const uint8_t>()
                                                : std::span<const uint8_t>(buffers.zero_points)};
  const std::lock_guard lock(engine_mutex);
  return engine.Run(problem, buffers.y);
}

}  // namespace

bool EngineTakes(const PackRequest& request) {
  return request.scheme.code == CodeType::kU4 && request.scheme.bits == 4 &&
         request.scheme.activations.type == ActivationType::kNone;
}

Result<GemmSums> MultiplyByEngine(const PackedModule& packed, const SecondDecoder& source,
                                  GemmEngine& engine, std::mutex& engine_mutex,
                                  Progress& progress) {
  const PackRequest& request = packed.request();
  Result<GemmTruth> truth = GemmTruth::Make(packed, source, DType::kBF16);
  if (!truth.ok()) return truth.status();
  const uint64_t step =
      PanelRowsFor(request.scheme.code, request.k, packed.layout().cut(request).rows);
  GemmSums figures;
  Buffers buffers;
  for (uint64_t n0 = 0; n0 < request.n; n0 += step) {
    if (CancellationRequested()) return Interrupted(packed.name());
    const uint64_t rows = std::min(step, request.n - n0);
    Result<GemmInfo> info =
        RunPanel(packed, truth->input(), engine, engine_mutex, n0, rows, buffers);
    if (!info.ok()) return info.status();
    const WeightRounding rounding =
        info->rounds_weights_to_bf16 ? WeightRounding::kToBF16 : WeightRounding::kToF32;
    Status status = truth->Compare(rounding, n0, buffers.y, figures);
    if (!status.ok()) return status;
    if (n0 == 0) {  // the report names what ran on the first panel
      figures.implementation = std::move(info->implementation);
      figures.activations = std::move(info->activation_type);
    }
    progress.Add(rows * request.k);
  }
  return figures;
}

}  // namespace prepack
