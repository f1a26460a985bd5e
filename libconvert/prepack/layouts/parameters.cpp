#include "prepack/layouts/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "prepack/base/float_convert.h"
#include "prepack/base/memory.h"
#include "prepack/kernels/kernels.h"

namespace prepack {
namespace {

struct F32 {
  using Stored = float;
  static float Narrow(float value) { return value; }
  static float Widen(float stored) { return stored; }
};

struct BF16 {
  using Stored = uint16_t;
  static uint16_t Narrow(float value) { return F32ToBF16(value); }
  static float Widen(uint16_t bits) { return BF16ToF32(bits); }
};

struct F16 {
  using Stored = uint16_t;
  static uint16_t Narrow(float value) { return F32ToF16(value); }
  static float Widen(uint16_t bits) { return F16ToF32(bits); }
};

// Rows that are moved together: their f32 lines stay in the L1 cache for all groups.
constexpr uint64_t kTileRows = 64;

// Some rows of one block: parameter [row, 0] is element `packed` of the strip.
struct ParameterTile {
  uint64_t row = 0;
  uint64_t rows = 0;
  uint64_t packed = 0;
};

template <typename Visit>
void ForTiles(const ParameterStrip& strip, Visit visit) {
  for (uint64_t block = 0; block < strip.rows; block += strip.width) {
    for (uint64_t tile = 0; tile < strip.width; tile += kTileRows) {
      visit(ParameterTile{.row = block + tile,
                          .rows = std::min(kTileRows, strip.width - tile),
                          .packed = block * strip.groups + tile});
    }
  }
}

uint64_t TileParameters(const ParameterStrip& strip) {
  return std::min(kTileRows, strip.width) * strip.groups;
}

// Parameters [rows, G] of a tile, of `unit` bytes each, to their places in the strip, and back.
void TurnTile(const ParameterStrip& strip, const ParameterTile& tile, size_t unit,
              const std::byte* rows, std::byte* packed) {
  TransposeUnits(unit)(rows, strip.groups * unit, tile.rows, strip.groups,
                       packed + tile.packed * unit, strip.width * unit);
}
void TurnTileBack(const ParameterStrip& strip, const ParameterTile& tile, size_t unit,
                  const std::byte* packed, std::byte* rows) {
  TransposeUnits(unit)(packed + tile.packed * unit, strip.width * unit, strip.groups, tile.rows,
                       rows, strip.groups * unit);
}

bool Changes(DType dtype, float scale) {
  const float rounded = RoundTo(dtype, scale);
  return !std::isfinite(rounded) || (rounded == 0) != (scale == 0);
}

// The same of a scale and what it was rounded to, without a branch.
uint32_t HasChanged(float scale, float rounded) {
  constexpr uint32_t kInfinity = 0x7F800000;
  const uint32_t before = std::bit_cast<uint32_t>(scale) & 0x7FFFFFFFU;
  const uint32_t after = std::bit_cast<uint32_t>(rounded) & 0x7FFFFFFFU;
  const uint32_t infinite = after >= kInfinity ? 1 : 0;
  const uint32_t vanished = (after == 0 ? 1U : 0U) ^ (before == 0 ? 1U : 0U);
  return infinite | vanished;
}

// Value is what the kernel's scale holds, Part how it is stored. True when a scale changes.
template <typename Value, typename Part>
bool Pack(const ParameterStrip& strip, std::span<const float> scales, std::span<std::byte> packed) {
  using Stored = typename Part::Stored;
  uint32_t changed = 0;
  Scratch<Stored> stored(TileParameters(strip));
  ForTiles(strip, [&](const ParameterTile& tile) {
    const std::span<const float> from =
        scales.subspan(tile.row * strip.groups, tile.rows * strip.groups);
    Stored* to = stored.data();
    for (size_t i = 0; i < from.size(); ++i) {
      const typename Value::Stored narrow = Value::Narrow(from[i]);
      const float value = Value::Widen(narrow);
      changed |= HasChanged(from[i], value);
      if constexpr (std::is_same_v<Value, Part>) {
        to[i] = narrow;
      } else {
        to[i] = Part::Narrow(value);
      }
    }
    TurnTile(strip, tile, sizeof(Stored), std::as_bytes(std::span(stored)).data(), packed.data());
  });
  return changed != 0;
}

template <typename Part>
void Unpack(const ParameterStrip& strip, std::span<const std::byte> packed,
            std::span<float> scales) {
  using Stored = typename Part::Stored;
  Scratch<Stored> stored(TileParameters(strip));
  ForTiles(strip, [&](const ParameterTile& tile) {
    TurnTileBack(strip, tile, sizeof(Stored), packed.data(),
                 std::as_writable_bytes(std::span(stored)).data());
    const std::span<float> to = scales.subspan(tile.row * strip.groups, tile.rows * strip.groups);
    for (size_t i = 0; i < to.size(); ++i) to[i] = Part::Widen(stored[i]);
  });
}

bool PackAs(const ScaleForm& form, const ParameterStrip& strip, std::span<const float> scales,
            std::span<std::byte> packed) {
  const bool wide = form.part == DType::kF32;
  switch (form.value) {
    case DType::kBF16:
      return wide ? Pack<BF16, F32>(strip, scales, packed)
                  : Pack<BF16, BF16>(strip, scales, packed);
    case DType::kF16:
      return wide ? Pack<F16, F32>(strip, scales, packed) : Pack<F16, F16>(strip, scales, packed);
    default:
      return Pack<F32, F32>(strip, scales, packed);
  }
}

}  // namespace

Division GroupsByInputs(const PackRequest& request, size_t axis) {
  if (request.groups() == 1) return Division::Whole();
  return Division::Along(axis, request.scheme.group_size);
}

PartSpec BlockedPart(const PackRequest& request, PartRole role, std::string_view name,
                     DType dtype) {
  return {.role = role,
          .name = name,
          .dtype = dtype,
          .shape = {request.n / kParameterBlock, request.groups(), kParameterBlock},
          .by_outputs = Division::Along(0, kParameterBlock),
          .by_inputs = GroupsByInputs(request, 1)};
}

Placement PlaceBlocked(const PackRequest& request, PartRole role, uint64_t n0, uint64_t rows) {
  const uint64_t row_bytes = request.groups() * (role == PartRole::kScale ? sizeof(float) : 1);
  return {{.offset = n0 * row_bytes, .bytes = rows * row_bytes}};
}

ScaleForm ZentorchScaleForm(const PackRequest& request) {
  const DType dtype = request.exact_scales ? DType::kF32 : DType::kBF16;
  return {.value = dtype, .part = dtype};
}

Placement PlaceZentorchScales(const PackRequest& request, PartRole /*role*/, uint64_t n0,
                              uint64_t rows) {
  return PlaceTransposed(request, DTypeBits(ZentorchScaleForm(request).part), n0, rows);
}

Status PackZentorchScales(const PackRequest& request, uint64_t rows, std::span<const float> scales,
                          std::span<std::byte> packed) {
  return PackScaleStrip(ZentorchScaleForm(request), TransposedStrip(request, rows), scales, packed);
}

void UnpackZentorchScales(const PackRequest& request, uint64_t rows,
                          std::span<const std::byte> packed, std::span<float> scales) {
  UnpackScaleStrip(ZentorchScaleForm(request), TransposedStrip(request, rows), packed, scales);
}

PartSpec ChannelScalePart(const PackRequest& request, DType dtype) {
  return {.role = PartRole::kScale,
          .name = "weight_scale",
          .dtype = dtype,
          .shape = {request.n},
          .by_outputs = Division::Along(0, 1),
          .by_inputs = Division::Whole()};
}

ScaleForm F32ScaleForm(const PackRequest& /*request*/) {
  return {.value = DType::kF32, .part = DType::kF32};
}

Placement PlaceChannelScales(const PackRequest& request, PartRole /*role*/, uint64_t n0,
                             uint64_t rows) {
  return PlaceTransposed(request, DTypeBits(DType::kF32), n0, rows);
}

Status PackChannelScales(const PackRequest& request, uint64_t rows, std::span<const float> scales,
                         std::span<std::byte> packed) {
  return PackScaleStrip(F32ScaleForm(request), TransposedStrip(request, rows), scales, packed);
}

void UnpackChannelScales(const PackRequest& request, uint64_t rows,
                         std::span<const std::byte> packed, std::span<float> scales) {
  UnpackScaleStrip(F32ScaleForm(request), TransposedStrip(request, rows), packed, scales);
}

PartSpec WeightSumPart(const PackRequest& request, std::string_view name) {
  return {.role = PartRole::kWeightSum,
          .name = name,
          .dtype = DType::kF32,
          .shape = {request.n},
          .by_outputs = Division::Along(0, 1),
          .by_inputs = Division::Never()};  // a sum over all of K
}

void AppendInputParts(const PackRequest& request, std::vector<PartSpec>& parts) {
  const ActivationScheme& activations = request.scheme.activations;
  if (activations.type == ActivationType::kNone || activations.dynamic) return;
  parts.push_back({.role = PartRole::kInputScale,
                   .name = "input_scale",
                   .dtype = DType::kF32,
                   .shape = {1},
                   .by_outputs = Division::Whole(),
                   .by_inputs = Division::Whole()});
  if (activations.symmetric) return;
  parts.push_back({.role = PartRole::kInputZeroPoint,
                   .name = "input_zero_point",
                   .dtype = DType::kI32,
                   .shape = {1},
                   .by_outputs = Division::Whole(),
                   .by_inputs = Division::Whole()});
}

Status PackScaleStrip(const ScaleForm& form, const ParameterStrip& strip,
                      std::span<const float> scales, std::span<std::byte> packed) {
  if (!PackAs(form, strip, scales, packed)) return {};
  const auto bad =
      std::ranges::find_if(scales, [&](float scale) { return Changes(form.value, scale); });
  const auto index = static_cast<uint64_t>(bad - scales.begin());
  return Unsupported(
             fmt::format("scale of row {}, group {}", index / strip.groups, index % strip.groups),
             fmt::format("{} cannot hold it: it would become {}", DTypeName(form.value),
                         RoundTo(form.value, *bad)))
      .Found(fmt::format("{}", *bad))
      .Hint("Choose activations of another dtype with --dtype");
}

void UnpackScaleStrip(const ScaleForm& form, const ParameterStrip& strip,
                      std::span<const std::byte> packed, std::span<float> scales) {
  switch (form.part) {
    case DType::kBF16:
      return Unpack<BF16>(strip, packed, scales);
    case DType::kF16:
      return Unpack<F16>(strip, packed, scales);
    default:
      return Unpack<F32>(strip, packed, scales);
  }
}

void PackZeroBytes(const ParameterStrip& strip, std::span<const uint8_t> zero_points,
                   std::span<std::byte> packed) {
  ForTiles(strip, [&](const ParameterTile& tile) {
    TurnTile(strip, tile, 1, std::as_bytes(zero_points).subspan(tile.row * strip.groups).data(),
             packed.data());
  });
}

void UnpackZeroBytes(const ParameterStrip& strip, std::span<const std::byte> packed,
                     std::span<uint8_t> zero_points) {
  ForTiles(strip, [&](const ParameterTile& tile) {
    TurnTileBack(strip, tile, 1, packed.data(),
                 std::as_writable_bytes(zero_points).subspan(tile.row * strip.groups).data());
  });
}

void PackZeroNibbles(const ParameterStrip& strip, std::span<const uint8_t> zero_points,
                     std::span<std::byte> packed) {
  Scratch<std::byte> bytes(strip.rows * strip.groups);
  PackZeroBytes(strip, zero_points, bytes);
  for (size_t i = 0; i < bytes.size() / 2; ++i) packed[i] = bytes[2 * i] | bytes[2 * i + 1] << 4;
}

void UnpackZeroNibbles(const ParameterStrip& strip, std::span<const std::byte> packed,
                       std::span<uint8_t> zero_points) {
  Scratch<std::byte> bytes(strip.rows * strip.groups);
  for (size_t i = 0; i < bytes.size() / 2; ++i) {
    bytes[2 * i] = packed[i] & std::byte{15};
    bytes[2 * i + 1] = packed[i] >> 4;
  }
  UnpackZeroBytes(strip, bytes, zero_points);
}

void PackTransposedZeroNibbles(const PackRequest& request, uint64_t rows,
                               std::span<const uint8_t> zero_points, std::span<std::byte> packed) {
  PackZeroNibbles(TransposedStrip(request, rows), zero_points, packed);
}

void UnpackTransposedZeroNibbles(const PackRequest& request, uint64_t rows,
                                 std::span<const std::byte> packed,
                                 std::span<uint8_t> zero_points) {
  UnpackZeroNibbles(TransposedStrip(request, rows), packed, zero_points);
}

Placement PlaceTransposed(const PackRequest& request, uint64_t bits, uint64_t n0, uint64_t rows) {
  return {{.offset = n0 * bits / 8,
           .bytes = rows * bits / 8,
           .count = request.groups(),
           .stride = request.n * bits / 8}};
}

}  // namespace prepack
