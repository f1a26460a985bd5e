#include "layouts/scale_convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float_convert.h"

namespace prepack {
namespace {

struct BF16 {
  static uint16_t Narrow(float value) { return F32ToBF16(value); }
  static float Widen(uint16_t bits) { return BF16ToF32(bits); }
};

struct F16 {
  static uint16_t Narrow(float value) { return F32ToF16(value); }
  static float Widen(uint16_t bits) { return F16ToF32(bits); }
};

// Rows that are transposed together: their f32 lines stay in the L1 cache for all groups.
constexpr uint64_t kTileRows = 64;

template <typename Format>
bool Changes(float scale) {
  const float narrow = Format::Widen(Format::Narrow(scale));
  return !std::isfinite(narrow) || (narrow == 0) != (scale == 0);
}

template <typename Format>
Status Pack(DType dtype, uint64_t rows, uint64_t groups, std::span<const float> scales,
            std::span<std::byte> packed) {
  bool changed = false;
  for (uint64_t tile = 0; tile < rows; tile += kTileRows) {
    const uint64_t end = std::min(rows, tile + kTileRows);
    for (uint64_t g = 0; g < groups; ++g) {
      for (uint64_t r = tile; r < end; ++r) {
        const float scale = scales[r * groups + g];
        const uint16_t bits = Format::Narrow(scale);
        changed |= Changes<Format>(scale);
        std::memcpy(&packed[(g * rows + r) * sizeof bits], &bits, sizeof bits);
      }
    }
  }
  if (!changed) return {};
  const auto bad = std::ranges::find_if(scales, Changes<Format>);
  const auto index = static_cast<uint64_t>(bad - scales.begin());
  return Unsupported(fmt::format("scale of row {}, group {}", index / groups, index % groups),
                     fmt::format("{} cannot hold it: it would become {}", DTypeName(dtype),
                                 Format::Widen(Format::Narrow(*bad))))
      .Found(fmt::format("{}", *bad))
      .Hint("Choose activations of another dtype with --dtype");
}

template <typename Format>
void Unpack(uint64_t rows, uint64_t groups, std::span<const std::byte> packed,
            std::span<float> scales) {
  for (uint64_t tile = 0; tile < rows; tile += kTileRows) {
    const uint64_t end = std::min(rows, tile + kTileRows);
    for (uint64_t g = 0; g < groups; ++g) {
      for (uint64_t r = tile; r < end; ++r) {
        uint16_t bits = 0;
        std::memcpy(&bits, &packed[(g * rows + r) * sizeof bits], sizeof bits);
        scales[r * groups + g] = Format::Widen(bits);
      }
    }
  }
}

}  // namespace

float RoundScale(DType dtype, float scale) {
  if (dtype == DType::kBF16) return BF16::Widen(BF16::Narrow(scale));
  if (dtype == DType::kF16) return F16::Widen(F16::Narrow(scale));
  return scale;
}

Status PackTransposedScales(DType dtype, uint64_t rows, uint64_t groups,
                            std::span<const float> scales, std::span<std::byte> packed) {
  return dtype == DType::kF16 ? Pack<F16>(dtype, rows, groups, scales, packed)
                              : Pack<BF16>(dtype, rows, groups, scales, packed);
}

void UnpackTransposedScales(DType dtype, uint64_t rows, uint64_t groups,
                            std::span<const std::byte> packed, std::span<float> scales) {
  if (dtype == DType::kF16) {
    Unpack<F16>(rows, groups, packed, scales);
  } else {
    Unpack<BF16>(rows, groups, packed, scales);
  }
}

}  // namespace prepack
