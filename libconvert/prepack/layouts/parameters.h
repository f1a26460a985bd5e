#pragma once

// Places, packs and unpacks scales and zero points, as the row of a layout says: in which dtype,
// and how many output channels lie side by side. They are [rows, G] in the canonical layout. With
// `width` w, parameter (r, g) of a strip is element
//
//     (r / w · G + g) · w + r % w
//
// of it: [rows / w, G, w]. A width of all rows of the strip is the transposed form [G, rows]. The
// number of rows is a multiple of the width.
//
// Checkpoints store scales as the scheme has them, [⌈N/r⌉, G] without repetition.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "prepack/base/dtype.h"
#include "prepack/base/status.h"
#include "prepack/layouts/layout.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

// Parameters of stacked experts lie expert by expert: calls visit(n0, rows) for those of
// [n0, n0 + rows) that belong to one, in order; stops at the first status that is not OK.
template <typename Visit>
Status ForExpertRows(const PackRequest& request, uint64_t n0, uint64_t rows, Visit visit) {
  const uint64_t n = request.n_of_expert();
  for (const uint64_t end = n0 + rows; n0 < end;) {
    const uint64_t count = std::min(end - n0, n - n0 % n);
    PREPACK_TRY(visit(n0, count));
    n0 += count;
  }
  return {};
}

// Where rows [n0, n0 + rows) of scales or zero points go, which belong to one expert if any; n0
// and, but for the last strip, rows are multiples of cut().strip_rows. Of a layout whose weight
// holds the scales, the place in the weight, of one strip.
Placement PlaceParameters(const Layout& layout, const PackRequest& request, PartRole role,
                          uint64_t n0, uint64_t rows);

// Packs scales [rows, G] f32 of a strip, and back, for a layout that has scales. A finite scale
// that would become infinite, or zero without being zero, or that F8_E8M0 or a checkpoint cannot
// hold as it is, is kUnsupported, with its place (counted from the start of the strip) and its
// value: the packed weights would not be the model's. What is written is right even then.
//
// `global`: of a layout with two levels of scales, that of the source; to unpack, the packed one.
Status PackScales(const Layout& layout, const PackRequest& request, uint64_t rows,
                  std::span<const float> scales, std::span<std::byte> packed,
                  const GlobalScale& global = {});
void UnpackScales(const Layout& layout, const PackRequest& request, uint64_t rows,
                  std::span<const std::byte> packed, std::span<float> scales,
                  const GlobalScale& global = {});

// The number of FP8 that gives the scale under the global one, or the nearest there is.
float BelowGlobal(const GlobalScale& global, float scale);
// The global scale as the layout stores it. Where one convention divides and the other multiplies,
// it is the reciprocal, rounded to f32.
GlobalScale PackedGlobalScale(const Layout& layout, const GlobalScale& source);
// What unpacking makes of a scale of the source, of a layout with two levels of scales.
float PackedScale(const Layout& layout, const GlobalScale& global, float scale);

// Packs zero points [rows, G] u8 and back, for a module that has the part.
void PackZeroPoints(const Layout& layout, const PackRequest& request, uint64_t rows,
                    std::span<const uint8_t> zero_points, std::span<std::byte> packed);
void UnpackZeroPoints(const Layout& layout, const PackRequest& request, uint64_t rows,
                      std::span<const std::byte> packed, std::span<uint8_t> zero_points);

// Parameters in the rows of the scheme, [⌈N/r⌉, G]: what output channels share stands there once.
class SchemeRows {
 public:
  explicit SchemeRows(const PackRequest& request)
      : height_(request.scheme.scale_rows), groups_(request.groups()) {}

  // Of so many output channels.
  uint64_t Count(uint64_t rows) const { return CeilDiv(rows, height_) * groups_; }
  // Parameter `stored` as one of [rows, G], the first of those that are the same; and where one of
  // [rows, G] is stored.
  uint64_t Canonical(uint64_t stored) const {
    return stored / groups_ * height_ * groups_ + stored % groups_;
  }
  uint64_t Stored(uint64_t canonical) const {
    return canonical / groups_ / height_ * groups_ + canonical % groups_;
  }

 private:
  uint64_t height_;
  uint64_t groups_;
};

// What these functions are made of.

// The rows of a strip and how they are stored.
struct ParameterStrip {
  uint64_t rows = 0;
  uint64_t groups = 0;
  uint64_t width = 0;
};

// Scales are rounded to nearest even to what `value` holds and stored as `stored`. F8_E8M0, which
// is stored as U8, rounds nothing.
struct ScaleDTypes {
  DType value = DType::kF32;
  DType stored = DType::kF32;
};

Status PackScaleStrip(const ScaleDTypes& as, const ParameterStrip& strip,
                      std::span<const float> scales, std::span<std::byte> packed);
// The inverse, widened to f32.
void UnpackScaleStrip(const ScaleDTypes& as, const ParameterStrip& strip,
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

}  // namespace prepack
