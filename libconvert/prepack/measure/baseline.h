#pragma once

// How far quantized weights are from the unquantized checkpoint:
//
//     SQNR = 10 · log10(Σ w² / Σ (w − q)²) dB      w: float weight, q: dequantized; sums in f64
//
// 4-bit weights in groups of 128 have 17 to 20 dB, 8-bit ones 40 and more, FP8 31; AWQ, which moves
// scales into the preceding layers, has far less against the original. Only a module that falls
// behind its peers is telling: those with the same role (the same name up to numbers) and scheme.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/container/checkpoint.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/format.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

// A module is an outlier when it is this far below the median of its peers … (half a bit of
// precision: 6 dB is one bit)
inline constexpr double kOutlierDb = 3.0;
// … and by this many robust standard deviations (1.4826 · median absolute deviation), so that
// roles whose layers differ widely by nature are left alone.
inline constexpr double kOutlierDeviations = 5.0;
// Fewer peers have no meaningful median.
inline constexpr size_t kMinPeers = 4;
// Below this the difference has half the energy of the weights. 2-bit weights keep 8 dB.
inline constexpr double kUnrelatedDb = 3.0;

// Sums of a stripe of rows.
struct BaselineSums {
  double signal = 0;
  double noise = 0;

  void Merge(const BaselineSums& other) {
    signal += other.signal;
    noise += other.noise;
  }
  // Infinite when there is no noise; nullopt when there is no signal to compare with.
  std::optional<double> SqnrDb() const;
};

// What a dimension may exceed another by and still be called padding.
inline constexpr uint64_t kMaxPadding = 255;

// A module that is looked for in the baseline.
struct BaselineModule {
  std::string_view name;
  uint64_t n = 0;
  uint64_t k = 0;
};

// The float weight of a module in the baseline.
struct BaselineWeight {
  const StoredTensor* tensor = nullptr;  // [N, K], or [K, N] (formats/stored_linear.h)
  uint64_t n = 0;
  uint64_t k = 0;
  bool inputs_first = false;  // it is [K, N]

  // Channels [n0, n0 + rows) as [rows, K].
  Status Read(const Checkpoint& baseline, uint64_t n0, uint64_t rows, std::span<float> out) const;
};

// nullopt, with a finding, when there is none that can be compared. K of the module may be larger
// by padding; then the common part counts.
std::optional<BaselineWeight> FindBaselineWeight(const Checkpoint& baseline,
                                                 const BaselineModule& module,
                                                 std::vector<Finding>& findings);

// Adds channels [n0, n0 + rows) to `sums`. Errors are those of the readers.
Status CompareWithBaseline(const QuantizedLinear& linear, const Checkpoint& baseline,
                           const BaselineWeight& weight, uint64_t n0, uint64_t rows,
                           BaselineSums& sums);

// What modules have in common that are peers: their role and their scheme.
std::string PeersOf(std::string_view module, const Scheme& scheme);

// One module's figure, for finding outliers.
struct PeerFigure {
  std::string peers;  // modules with the same text are peers
  double sqnr_db = 0;
  std::optional<double> outlier_below_db;  // set: an outlier, this far below the median
};

// Sets outlier_below_db.
void MarkOutliers(std::vector<PeerFigure>& figures);

}  // namespace prepack
