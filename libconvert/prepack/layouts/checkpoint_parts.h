#pragma once

// Symbols and parts that layouts of several checkpoint formats share.

#include <array>
#include <numeric>

#include "prepack/base/checked.h"
#include "prepack/layouts/layout.h"

namespace prepack {

namespace symbol {

template <Granularity kGranularity>
constexpr bool HasGranularity(const PackRequest& request) {
  return request.scheme.granularity == kGranularity;
}
inline constexpr Condition kPerTensor{"scales per tensor", HasGranularity<Granularity::kTensor>};
inline constexpr Condition kPerGroup{"scales per group", HasGranularity<Granularity::kGroup>};
inline constexpr Condition kPerBlock{"scales per block", HasGranularity<Granularity::kBlock>};
inline constexpr Extent kScaleRows{
    "⌈N/r⌉", [](const PackRequest& r) { return CeilDiv(r.n, r.scheme.scale_rows); }};
// Of libraries that know 16-bit scales only.
inline constexpr StoredDType kHalfOfSource{
    "dtype of the source; F16 where that is F32", [](const PackRequest& r) {
      return r.stored_scale_dtype == DType::kBF16 ? DType::kBF16 : DType::kF16;
    }};

}  // namespace symbol

// Scales of integer weights as GPTQ and AWQ have them: `scales` [G, N].
inline constexpr std::array kScalesByGroupParts = {PartRow{.role = PartRole::kScale,
                                                           .name = "scales",
                                                           .dtype = symbol::kHalfOfSource,
                                                           .shape = {symbol::kG, symbol::kN}}};
inline constexpr ScaleRow kScalesByGroup{.order = ParameterOrder::kGroups,
                                         .value = symbol::kHalfOfSource,
                                         .stored = symbol::kHalfOfSource,
                                         .parts = kScalesByGroupParts};

// Of compressed-tensors.

inline constexpr std::string_view kCtName = "compressed-tensors";

constexpr PartRow CtScale(Extents shape, Condition when, StoredDType dtype = symbol::kAsStored) {
  return {.role = PartRole::kScale,
          .name = "weight_scale",
          .dtype = dtype,
          .shape = shape,
          .when = when};
}
inline constexpr std::array kCtScales = {
    CtScale({1}, symbol::kPerTensor),
    CtScale({symbol::kN, 1}, symbol::kScalesPerChannel),
    CtScale({symbol::kN, symbol::kG}, symbol::kPerGroup),
    CtScale({symbol::kScaleRows, symbol::kG}, symbol::kPerBlock),
};
inline constexpr ScaleRow kCtScaleRow{.order = ParameterOrder::kRows,
                                      .value = symbol::kAsStored,
                                      .stored = symbol::kAsStored,
                                      .parts = kCtScales};
inline constexpr std::array kCtInputs = {
    PartRow{.role = PartRole::kInputScale,
            .name = "input_scale",
            .dtype = DType::kF32,
            .shape = {1},
            .when = symbol::kStaticActivations},
    PartRow{.role = PartRole::kInputZeroPoint,
            .name = "input_zero_point",
            .dtype = DType::kI8,
            .shape = {1},
            .when = symbol::kStaticAsymmetricActivations},
};

// Scales of MX formats, exponents: u means 2^(u − 127).
inline constexpr uint64_t kMxInputs = 32;

// Strips of scales begin at whole blocks, and at multiples of `unit` output channels.
inline uint64_t StripUnit(const PackRequest& request, uint64_t unit) {
  return std::lcm(unit, request.scheme.scale_rows);
}

}  // namespace prepack
