#include "prepack/measure/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>

#include "prepack/base/decibel.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/measure/module_statistics.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

constexpr double kMadToDeviation = 1.4826;  // for a Gaussian distribution

bool IsReadableFloat(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

}  // namespace

std::optional<double> BaselineSums::SqnrDb() const {
  return Decibel(signal, noise);
}

Status BaselineWeight::Read(const Checkpoint& baseline, uint64_t n0, uint64_t rows,
                            std::span<float> out) const {
  return inputs_first ? ReadFloatColumns(baseline, *tensor, n, k, n0, rows, out)
                      : ReadFloats(baseline, *tensor, n0 * k, out);
}

std::optional<BaselineWeight> FindBaselineWeight(const Checkpoint& baseline,
                                                 const BaselineModule& module,
                                                 std::vector<Finding>& findings) {
  const StoredTensor* weight = baseline.Find(std::string(module.name) + ".weight");
  if (weight == nullptr || !IsReadableFloat(weight->dtype)) {
    findings.push_back(MakeFinding(
        "baseline-missing", module.name,
        weight == nullptr ? "the baseline has no weight for this module"
                          : fmt::format("the baseline stores this weight as {}, not as BF16, F16 "
                                        "or F32",
                                        DTypeName(weight->dtype))));
    return std::nullopt;
  }
  if (weight->shape.size() == 2) {
    const bool inputs_first = IsConv1d(baseline.config(), module.name);
    const uint64_t n = weight->shape[inputs_first ? 1 : 0];
    const uint64_t k = weight->shape[inputs_first ? 0 : 1];
    const bool fits = n == module.n && k <= module.k && module.k - k <= kMaxPadding && k != 0;
    if (fits) return BaselineWeight{weight, n, k, inputs_first};
  }
  findings.push_back(MakeFinding("baseline-shape", module.name,
                                 fmt::format("[{}, {}], but {} in the baseline", module.n, module.k,
                                             ShowShape(weight->shape))));
  return std::nullopt;
}

Status CompareWithBaseline(const QuantizedLinear& linear, const Checkpoint& baseline,
                           const BaselineWeight& weight, uint64_t n0, uint64_t rows,
                           BaselineSums& sums) {
  const uint64_t inputs = weight.k;
  DequantizeBuffers buffers;
  std::vector<float> quantized(rows * linear.k());
  std::vector<float> original(rows * inputs);
  PREPACK_TRY(DequantizeRows(linear, n0, rows, buffers, quantized));
  PREPACK_TRY(weight.Read(baseline, n0, rows, original));
  for (uint64_t row = 0; row < rows; ++row) {
    const float* q = quantized.data() + row * linear.k();
    const float* w = original.data() + row * inputs;
    for (uint64_t k = 0; k < inputs; ++k) {
      const double value = w[k];
      const double error = value - q[k];
      sums.signal += value * value;
      sums.noise += error * error;
    }
  }
  return {};
}

std::string PeersOf(std::string_view module, const Scheme& scheme) {
  return RoleOf(module) + " " + DescribeScheme(scheme);
}

void MarkOutliers(std::vector<PeerFigure>& figures) {
  std::map<std::string, std::vector<PeerFigure*>, std::less<>> groups;
  for (PeerFigure& figure : figures) {
    if (std::isfinite(figure.sqnr_db)) groups[figure.peers].push_back(&figure);
  }
  for (const auto& [peers, members] : groups) {
    if (members.size() < kMinPeers) continue;
    std::vector<double> values;
    for (const PeerFigure* member : members) values.push_back(member->sqnr_db);
    const double median = Median(values);
    for (double& value : values) value = std::abs(value - median);
    const double deviation = kMadToDeviation * Median(values);
    for (PeerFigure* member : members) {
      const double below = median - member->sqnr_db;
      if (below > std::max(kOutlierDb, kOutlierDeviations * deviation)) {
        member->outlier_below_db = below;
      }
    }
  }
}

}  // namespace prepack
