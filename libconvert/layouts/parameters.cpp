#include "layouts/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float_convert.h"

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

// Calls move(canonical index, packed index) for every parameter of the strip.
template <typename Move>
void ForParameters(const ParameterStrip& strip, Move move) {
  const auto [rows, groups, width] = strip;
  for (uint64_t block = 0; block < rows; block += width) {
    for (uint64_t tile = 0; tile < width; tile += kTileRows) {
      const uint64_t end = std::min(width, tile + kTileRows);
      for (uint64_t g = 0; g < groups; ++g) {
        for (uint64_t r = tile; r < end; ++r) {
          move((block + r) * groups + g, block * groups + g * width + r);
        }
      }
    }
  }
}

bool Changes(DType dtype, float scale) {
  const float rounded = RoundTo(dtype, scale);
  return !std::isfinite(rounded) || (rounded == 0) != (scale == 0);
}

// Value is what the kernel's scale holds, Part how it is stored. True when a scale changes.
template <typename Value, typename Part>
bool Pack(const ParameterStrip& strip, std::span<const float> scales, std::span<std::byte> packed) {
  bool changed = false;
  ForParameters(strip, [&](uint64_t from, uint64_t to) {
    const float scale = scales[from];
    const float value = Value::Widen(Value::Narrow(scale));
    changed |= !std::isfinite(value) || (value == 0) != (scale == 0);
    const typename Part::Stored stored = Part::Narrow(value);
    std::memcpy(&packed[to * sizeof stored], &stored, sizeof stored);
  });
  return changed;
}

template <typename Part>
void Unpack(const ParameterStrip& strip, std::span<const std::byte> packed,
            std::span<float> scales) {
  ForParameters(strip, [&](uint64_t to, uint64_t from) {
    typename Part::Stored stored{};
    std::memcpy(&stored, &packed[from * sizeof stored], sizeof stored);
    scales[to] = Part::Widen(stored);
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
  ForParameters(strip, [&](uint64_t from, uint64_t to) {
    packed[to] = static_cast<std::byte>(zero_points[from]);
  });
}

void UnpackZeroBytes(const ParameterStrip& strip, std::span<const std::byte> packed,
                     std::span<uint8_t> zero_points) {
  ForParameters(strip, [&](uint64_t to, uint64_t from) {
    zero_points[to] = std::to_integer<uint8_t>(packed[from]);
  });
}

void PackZeroNibbles(const ParameterStrip& strip, std::span<const uint8_t> zero_points,
                     std::span<std::byte> packed) {
  ForParameters(strip, [&](uint64_t from, uint64_t to) {
    if (to % 2 != 0) return;  // the even one writes both: the odd one is of the next row
    const unsigned pair =
        zero_points[from] | static_cast<unsigned>(zero_points[from + strip.groups]) << 4;
    packed[to / 2] = static_cast<std::byte>(pair);
  });
}

void UnpackZeroNibbles(const ParameterStrip& strip, std::span<const std::byte> packed,
                       std::span<uint8_t> zero_points) {
  ForParameters(strip, [&](uint64_t to, uint64_t from) {
    const auto pair = std::to_integer<unsigned>(packed[from / 2]);
    zero_points[to] = static_cast<uint8_t>(from % 2 == 0 ? pair & 15U : pair >> 4);
  });
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
