#pragma once

// Which statistics of a quantized module are suspicious. The bars lie where no sound checkpoint of
// a real quantizer comes near, and where the known defects of quantizers and exporters are.

#include <cstdint>
#include <vector>

#include "prepack/check/check.h"
#include "prepack/formats/finding.h"
#include "prepack/measure/module_statistics.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

// Shares mean nothing in a tiny module: below kMinWeights weights, or this many groups, they are
// not judged.
inline constexpr uint64_t kMinGroups = 16;

// A Gaussian has 1/7 of its 4-bit codes in the middle, a FP8 number 1/50; a module nearly all of
// whose codes are one code is empty, or was never filled.
inline constexpr double kConstantCodes = 0.99;

// An absmax scale puts one code of each group on a rail, min-max two: 6 % at groups of 32. Equally
// frequent 4-bit codes have 12.5 % there. A third means clamping, such as unsigned zero points in a
// signed packer, which puts the upper half of each group on one rail. Not judged below 4 bits,
// where rails are half of all codes, and in groups below 16, where one code is much.
inline constexpr double kSaturatedCodes = 1.0 / 3;
inline constexpr uint32_t kMinSaturationBits = 4;
inline constexpr uint64_t kMinSaturationGroup = 16;

// An asymmetric group that has weights of both signs has its zero point inside. Groups of one sign
// are rare; with half of all zero points on one rail they were clamped or shifted. Not judged
// below 3 bits, where two of four values are rails.
inline constexpr double kRailZeroPoints = 0.5;
inline constexpr uint32_t kMinZeroPointBits = 3;

// Trained weights have a mean of some percent of their rms. A zero point that is off by one
// shifts 4-bit weights by 0.3, codes that are read in the wrong order or with the wrong offset by
// more. Not judged below 3 bits, where the grid itself is lopsided (-2 to 1).
inline constexpr double kMeanShift = 0.2;
inline constexpr uint32_t kMinShiftBits = 3;
inline constexpr uint64_t kMinShiftWeights = 4096;

// log2 of the scale against log2 of the codes' spread (SpreadSums) falls by 0.54 to 1.5 in modules
// of real quantizers, and by 0 to 0.05, ± its standard error, where scales belong to other groups.
// What is nearer to that is reported where the error is small enough to tell.
inline constexpr double kUnrelatedSlope = -0.35;
inline constexpr double kMaxSlopeError = 0.12;
// Where strong rows, or the groups in which GPTQ's activation order gathers strong channels, are
// more evenly spread than weak ones, it falls by less: in trained decoders by 0.29 ± 0.06 in
// activation order, and by 0.40 ± 0.04 and 0.15 ± 0.11 where an output channel has one scale.
inline constexpr double kUnrelatedSlopeLoose = -0.15;
inline constexpr double kMaxSlopeErrorLoose = 0.06;
inline constexpr uint64_t kMinSpreadGroups = 128;

// Scales of groups whose weights are all zero are written as some constant. One that lies among the
// others was taken from weights that are gone: within this many powers of two of their median.
inline constexpr unsigned kOrdinaryScaleBelow = 3;
inline constexpr unsigned kOrdinaryScaleAbove = 1;

// Appends what is suspicious about the module, and what is worth knowing.
void JudgeModule(const QuantizedLinear& linear, const ModuleStatistics& statistics,
                 std::vector<Finding>& findings);

// Judges modules by each other and by properties of the weights of any model. None of it looks at
// the quantization config, so it notices where that is misread as a whole, such as a divisor taken
// for a factor:
//   size        rms(W) · √K (measure/module_statistics.h), also against that of its peers in other
//               layers
//   copies      two modules with the same codes, or with the same scales

// A size against the median of the peers, at least kMinSizePeers with it.
inline constexpr double kPeerSize = 100;
inline constexpr size_t kMinSizePeers = 3;
// Findings of modules are appended to them, those of the whole model to `findings`.
void JudgeModel(std::vector<ModuleCheck>& modules, std::vector<Finding>& findings);

}  // namespace prepack
