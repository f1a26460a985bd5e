#ifndef PREPACK_LAYOUTS_PARAMETERS_H_
#define PREPACK_LAYOUTS_PARAMETERS_H_

// How layouts store scales and zero points, which are [rows, G] in the canonical layout. Shared by
// all layouts, which differ in two ways only: the dtype, and how many output channels lie side by
// side. With `width` w, parameter (r, g) of a strip is element
//
//     (r / w · G + g) · w + r % w
//
// of it: [rows / w, G, w]. A width of all rows of the strip is the transposed form [G, rows]. The
// number of rows is a multiple of the width.

#include <cstdint>
#include <span>

#include "prepack/base/dtype.h"
#include "prepack/base/status.h"
#include "prepack/layouts/layout.h"

namespace prepack {

// The rows of a strip and how they are stored.
struct ParameterStrip {
  uint64_t rows = 0;
  uint64_t groups = 0;
  uint64_t width = 0;
};

// The strip of a part [G, N].
inline ParameterStrip TransposedStrip(const PackRequest& request, uint64_t rows) {
  return {.rows = rows, .groups = request.groups(), .width = rows};
}

// How a part with the dimension G at `axis` is cut along K: a group at a time. A single row of
// parameters is for all inputs, whatever piece of them there is.
Division GroupsByInputs(const PackRequest& request, size_t axis = 0);

// Parameters [N / 32, G, 32], which kernels read that take 32 output channels at a time.
inline constexpr uint64_t kParameterBlock = 32;
PartSpec BlockedPart(const PackRequest& request, PartRole role, std::string_view name, DType dtype);
inline ParameterStrip BlockedStrip(const PackRequest& request, uint64_t rows) {
  return {.rows = rows, .groups = request.groups(), .width = kParameterBlock};
}
// f32 scales, or zero points of a byte.
Placement PlaceBlocked(const PackRequest& request, PartRole role, uint64_t n0, uint64_t rows);

// zentorch's ops take scales in bf16, which is what vLLM gives them, or f32; [G, N].
ScaleForm ZentorchScaleForm(const PackRequest& request);
Placement PlaceZentorchScales(const PackRequest& request, PartRole role, uint64_t n0,
                              uint64_t rows);
Status PackZentorchScales(const PackRequest& request, uint64_t rows, std::span<const float> scales,
                          std::span<std::byte> packed);
void UnpackZentorchScales(const PackRequest& request, uint64_t rows,
                          std::span<const std::byte> packed, std::span<float> scales);

// One scale per output channel: `weight_scale` [N].
PartSpec ChannelScalePart(const PackRequest& request, DType dtype);
// As f32, exactly what is stored; also for [G, N].
ScaleForm F32ScaleForm(const PackRequest& request);
Placement PlaceChannelScales(const PackRequest& request, PartRole role, uint64_t n0, uint64_t rows);
Status PackChannelScales(const PackRequest& request, uint64_t rows, std::span<const float> scales,
                         std::span<std::byte> packed);
void UnpackChannelScales(const PackRequest& request, uint64_t rows,
                         std::span<const std::byte> packed, std::span<float> scales);

// What kernels need for activations with zero points, f32 [N], see layouts/placement.h.
PartSpec WeightSumPart(const PackRequest& request, std::string_view name);
// Scale and zero point of static activations.
void AppendInputParts(const PackRequest& request, std::vector<PartSpec>& parts);

// A scale that becomes infinite, or zero without being zero, is kUnsupported, with its place (r, g)
// and its value: the packed weights would not be the model's. What is written is right even then.
Status PackScaleStrip(const ScaleForm& form, const ParameterStrip& strip,
                      std::span<const float> scales, std::span<std::byte> packed);
// The inverse, widened to f32.
void UnpackScaleStrip(const ScaleForm& form, const ParameterStrip& strip,
                      std::span<const std::byte> packed, std::span<float> scales);

// A byte per zero point.
void PackZeroBytes(const ParameterStrip& strip, std::span<const uint8_t> zero_points,
                   std::span<std::byte> packed);
void UnpackZeroBytes(const ParameterStrip& strip, std::span<const std::byte> packed,
                     std::span<uint8_t> zero_points);

// A nibble per zero point, the even one in the low half. Width and rows are even.
void PackZeroNibbles(const ParameterStrip& strip, std::span<const uint8_t> zero_points,
                     std::span<std::byte> packed);
void UnpackZeroNibbles(const ParameterStrip& strip, std::span<const std::byte> packed,
                       std::span<uint8_t> zero_points);

// As nibbles of a part [G, N].
void PackTransposedZeroNibbles(const PackRequest& request, uint64_t rows,
                               std::span<const uint8_t> zero_points, std::span<std::byte> packed);
void UnpackTransposedZeroNibbles(const PackRequest& request, uint64_t rows,
                                 std::span<const std::byte> packed, std::span<uint8_t> zero_points);

// Where a strip of a part [G, N] goes, in which a parameter takes `bits` bits.
Placement PlaceTransposed(const PackRequest& request, uint64_t bits, uint64_t n0, uint64_t rows);

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_PARAMETERS_H_
