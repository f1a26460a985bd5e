#include "prepack/layouts/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "prepack/base/float_convert.h"
#include "prepack/base/memory.h"
#include "prepack/kernels/kernels.h"

namespace prepack {
namespace {

struct F32 {
  using Stored = float;
  static constexpr bool kExact = false;
  static float Narrow(float value) { return value; }
  static float Widen(float stored) { return stored; }
};

struct BF16 {
  using Stored = uint16_t;
  static constexpr bool kExact = false;
  static uint16_t Narrow(float value) { return F32ToBF16(value); }
  static float Widen(uint16_t bits) { return BF16ToF32(bits); }
};

struct F16 {
  using Stored = uint16_t;
  static constexpr bool kExact = false;
  static uint16_t Narrow(float value) { return F32ToF16(value); }
  static float Widen(uint16_t bits) { return F16ToF32(bits); }
};

// Exponents: a scale that is no power of two has none.
struct E8M0 {
  using Stored = uint8_t;
  static constexpr bool kExact = true;
  static uint8_t Narrow(float value) { return F32ToF8E8M0(value); }
  static float Widen(uint8_t bits) { return F8E8M0ToF32(bits); }
};

// FP8, under a global scale.
struct F8E4M3 {
  using Stored = uint8_t;
  static constexpr bool kExact = true;
  static uint8_t Narrow(float value) { return F32ToF8E4M3(value); }
  static float Widen(uint8_t bits) { return F8E4M3ToF32(bits); }
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
  if (dtype == DType::kF8E8M0 || dtype == DType::kF8E4M3) return rounded != scale;
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
      changed |= Value::kExact ? (value == from[i] ? 0U : 1U) : HasChanged(from[i], value);
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

bool PackAs(const ScaleDTypes& as, const ParameterStrip& strip, std::span<const float> scales,
            std::span<std::byte> packed) {
  const bool wide = as.stored == DType::kF32;
  switch (as.value) {
    case DType::kBF16:
      return wide ? Pack<BF16, F32>(strip, scales, packed)
                  : Pack<BF16, BF16>(strip, scales, packed);
    case DType::kF16:
      return wide ? Pack<F16, F32>(strip, scales, packed) : Pack<F16, F16>(strip, scales, packed);
    case DType::kF8E8M0:
      return Pack<E8M0, E8M0>(strip, scales, packed);
    case DType::kF8E4M3:
      return Pack<F8E4M3, F8E4M3>(strip, scales, packed);
    default:
      return Pack<F32, F32>(strip, scales, packed);
  }
}

// Scales for squares of output and input channels. That of square (row, column) stands at canonical
// [row · scale_rows, column], or, where one is for all inputs, at [row · scale_rows, 0].
struct Squares {
  explicit Squares(const PackRequest& request)
      : groups(request.groups()),
        columns(CeilDiv(request.k, kSquareInputs)),
        height(request.scheme.scale_rows) {}

  uint64_t Bytes(uint64_t rows) const { return CeilDiv(rows, height) * columns * sizeof(float); }
  uint64_t Canonical(uint64_t row, uint64_t column) const {
    return row * height * groups + (groups == 1 ? 0 : column);
  }

  uint64_t groups;   // canonical scales along K
  uint64_t columns;  // stored ones
  uint64_t height;   // output channels
};

void PackSquares(const Squares& squares, uint64_t rows, std::span<const float> scales,
                 std::span<std::byte> packed) {
  for (uint64_t row = 0; row < CeilDiv(rows, squares.height); ++row) {
    for (uint64_t column = 0; column < squares.columns; ++column) {
      std::memcpy(&packed[(row * squares.columns + column) * sizeof(float)],
                  &scales[squares.Canonical(row, column)], sizeof(float));
    }
  }
}

void UnpackSquares(const Squares& squares, uint64_t rows, std::span<const std::byte> packed,
                   std::span<float> scales) {
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t g = 0; g < squares.groups; ++g) {
      const uint64_t at = row / squares.height * squares.columns + g;
      std::memcpy(&scales[row * squares.groups + g], &packed[at * sizeof(float)], sizeof(float));
    }
  }
}

bool AreSquares(const Layout& layout, const PackRequest& request) {
  return layout.scales.order == ParameterOrder::kSquares && !symbol::kScalesPerChannel.Of(request);
}

ScaleDTypes DTypesOf(const Layout& layout, const PackRequest& request) {
  return {.value = layout.scales.value.Of(request), .stored = layout.scales.stored.Of(request)};
}

// Replaces scales by the numbers of FP8 below the global one. The index of the first that has none,
// else their number.
uint64_t TakeGlobal(const GlobalScale& global, std::span<float> scales) {
  uint64_t bad = scales.size();
  for (uint64_t i = scales.size(); i-- > 0;) {
    const float below = BelowGlobal(global, scales[i]);
    if (global.Apply(below) != scales[i]) bad = i;
    scales[i] = below;
  }
  return bad;
}

// Numbers one after another, as a strip.
ParameterStrip LineOf(uint64_t count) {
  return {.rows = count, .groups = 1, .width = count};
}

// The row of a scale, and its group.
std::pair<uint64_t, uint64_t> PlaceOf(const PackRequest& request, uint64_t canonical) {
  return {canonical / request.groups(), canonical % request.groups()};
}

Status ScaleDoesNotFit(const std::pair<uint64_t, uint64_t>& place, DType dtype, float scale) {
  return Unsupported(fmt::format("scale of row {}, group {}", place.first, place.second),
                     fmt::format("{} cannot hold it: it would become {}", DTypeName(dtype),
                                 RoundTo(dtype, scale)))
      .Found(fmt::format("{}", scale));
}

constexpr std::string_view kExactOnly =
    "A checkpoint holds the scales of the source exactly, or not at all";

// Of a checkpoint: does the dtype hold each of the scales [rows, G] exactly?
Status CheckHeld(const PackRequest& request, DType dtype, std::span<const float> scales) {
  if (dtype == DType::kF32 || dtype == request.stored_scale_dtype) return {};
  const auto bad =
      std::ranges::find_if(scales, [&](float scale) { return RoundTo(dtype, scale) != scale; });
  if (bad == scales.end()) return {};
  const auto index = static_cast<uint64_t>(bad - scales.begin());
  return ScaleDoesNotFit(PlaceOf(request, index), dtype, *bad).Hint(std::string(kExactOnly));
}

Status PackSchemeRows(const Layout& layout, const PackRequest& request, uint64_t rows,
                      std::span<const float> scales, std::span<std::byte> packed,
                      const GlobalScale& global) {
  const SchemeRows form(request);
  const uint64_t count = form.Count(rows);
  Scratch<float> once(count);
  const std::span<float> line(once.data(), count);
  for (uint64_t i = 0; i < count; ++i) line[i] = scales[form.Canonical(i)];
  const ScaleDTypes as = DTypesOf(layout, request);
  if (layout.scales.two_levels) {
    const uint64_t bad = TakeGlobal(global, line);
    PackAs(as, LineOf(count), line, packed);
    if (bad == count) return {};
    const uint64_t place = form.Canonical(bad);
    return ScaleDoesNotFit(PlaceOf(request, place), DType::kF8E4M3, scales[place])
        .Hint(std::string(kExactOnly));
  }
  PackAs(as, LineOf(count), line, packed);
  return CheckHeld(request, as.value, scales);
}

void UnpackSchemeRows(const Layout& layout, const PackRequest& request, uint64_t rows,
                      std::span<const std::byte> packed, std::span<float> scales,
                      const GlobalScale& global) {
  const SchemeRows form(request);
  const uint64_t count = form.Count(rows);
  Scratch<float> once(count);
  const std::span<float> line(once.data(), count);
  UnpackScaleStrip(DTypesOf(layout, request), LineOf(count), packed, line);
  if (layout.scales.two_levels) {
    for (float& scale : line) scale = global.Apply(scale);
  }
  for (uint64_t i = 0; i < rows * request.groups(); ++i) scales[i] = line[form.Stored(i)];
}

// Scales multiplied by the layout's factor, which a scale must survive.
Status PackScaled(const Layout& layout, const PackRequest& request, const ParameterStrip& strip,
                  std::span<const float> scales, std::span<std::byte> packed) {
  const ScaleDTypes as = DTypesOf(layout, request);
  const float factor = layout.scales.factor(request);
  Scratch<float> scaled(scales.size());
  std::ranges::transform(scales, scaled.data(), [=](float scale) { return scale * factor; });
  PREPACK_TRY(PackScaleStrip(as, strip, std::span(scaled.data(), scales.size()), packed));
  for (size_t i = 0; i < scales.size(); ++i) {
    if (scaled[i] / factor == scales[i]) continue;
    const auto [row, group] = PlaceOf(request, i);
    return Unsupported(fmt::format("scale of row {}, group {}", row, group),
                       fmt::format("{} cannot hold a sixteenth of it, which the kernel multiplies "
                                   "with: it would become {}",
                                   DTypeName(as.value), scaled[i] / factor))
        .Found(fmt::format("{}", scales[i]))
        .Hint("Quantize the model again, or serve it with another runtime");
  }
  return {};
}

bool AreSchemeRows(const Layout& layout) {
  return layout.scales.order == ParameterOrder::kRows;
}

ParameterStrip StripOf(ParameterOrder order, const PackRequest& request, uint64_t rows) {
  const uint64_t width = order == ParameterOrder::kBlocks ? kParameterBlock : rows;
  return {.rows = rows, .groups = request.groups(), .width = width};
}

}  // namespace

Placement PlaceParameters(const Layout& layout, const PackRequest& request, PartRole role,
                          uint64_t n0, uint64_t rows) {
  const bool scale = role == PartRole::kScale;
  if (scale && AreSquares(layout, request)) {
    const Squares squares(request);
    return {{.offset = squares.Bytes(n0), .bytes = squares.Bytes(rows)}};
  }
  if (scale && layout.HoldsParameters()) {
    return layout.scales.place_in_weight(request, n0, rows);
  }
  if (scale && AreSchemeRows(layout)) {
    const SchemeRows form(request);
    const uint64_t bytes = DTypeBits(layout.scales.stored.Of(request)) / 8;
    return {{.offset = form.Count(n0) * bytes, .bytes = form.Count(rows) * bytes}};
  }
  if (!scale && layout.zero_points.form != nullptr) {
    return layout.zero_points.form->place(request, n0, rows);
  }
  const uint64_t bits =
      scale ? DTypeBits(layout.scales.stored.Of(request)) : layout.zero_points.bits;
  const ParameterOrder order = scale ? layout.scales.order : layout.zero_points.order;
  const uint64_t groups = request.groups();
  if (order == ParameterOrder::kBlocks) {
    return {{.offset = n0 * groups * bits / 8, .bytes = rows * groups * bits / 8}};
  }
  const uint64_t n = request.n_of_expert();  // [G, N], one expert after another
  return {{.offset = (n0 / n * groups * n + n0 % n) * bits / 8,
           .bytes = rows * bits / 8,
           .count = groups,
           .stride = n * bits / 8}};
}

Status PackScales(const Layout& layout, const PackRequest& request, uint64_t rows,
                  std::span<const float> scales, std::span<std::byte> packed,
                  const GlobalScale& global) {
  if (AreSquares(layout, request)) {
    PackSquares(Squares(request), rows, scales, packed);
    return {};
  }
  if (AreSchemeRows(layout)) {
    return PackSchemeRows(layout, request, rows, scales, packed, global);
  }
  const ParameterStrip strip = StripOf(layout.scales.order, request, rows);
  if (layout.scales.factor != nullptr) return PackScaled(layout, request, strip, scales, packed);
  const ScaleDTypes as = DTypesOf(layout, request);
  PREPACK_TRY(PackScaleStrip(as, strip, scales, packed));
  return layout.checkpoint ? CheckHeld(request, as.value, scales) : Status();
}

void UnpackScales(const Layout& layout, const PackRequest& request, uint64_t rows,
                  std::span<const std::byte> packed, std::span<float> scales,
                  const GlobalScale& global) {
  if (AreSquares(layout, request)) return UnpackSquares(Squares(request), rows, packed, scales);
  if (AreSchemeRows(layout)) {
    return UnpackSchemeRows(layout, request, rows, packed, scales, global);
  }
  UnpackScaleStrip(DTypesOf(layout, request), StripOf(layout.scales.order, request, rows), packed,
                   scales);
  if (layout.scales.factor == nullptr) return;
  const float factor = layout.scales.factor(request);
  for (float& scale : scales) scale /= factor;
}

float BelowGlobal(const GlobalScale& global, float scale) {
  const double wanted = global.divides ? static_cast<double>(scale) * global.value
                                       : static_cast<double>(scale) / global.value;
  return RoundTo(DType::kF8E4M3, static_cast<float>(wanted));
}

GlobalScale PackedGlobalScale(const Layout& layout, const GlobalScale& source) {
  const bool divides = layout.scales.global_divides;
  if (source.divides == divides) return source;
  return {.value = static_cast<float>(1.0 / source.value), .divides = divides};
}

float PackedScale(const Layout& layout, const GlobalScale& global, float scale) {
  return PackedGlobalScale(layout, global).Apply(BelowGlobal(global, scale));
}

void PackZeroPoints(const Layout& layout, const PackRequest& request, uint64_t rows,
                    std::span<const uint8_t> zero_points, std::span<std::byte> packed) {
  if (const ZeroPointForm* form = layout.zero_points.form) {
    return form->pack(request, rows, zero_points, packed);
  }
  const ParameterStrip strip = StripOf(layout.zero_points.order, request, rows);
  if (layout.zero_points.bits == 4) return PackZeroNibbles(strip, zero_points, packed);
  PackZeroBytes(strip, zero_points, packed);
}

void UnpackZeroPoints(const Layout& layout, const PackRequest& request, uint64_t rows,
                      std::span<const std::byte> packed, std::span<uint8_t> zero_points) {
  if (const ZeroPointForm* form = layout.zero_points.form) {
    return form->unpack(request, rows, packed, zero_points);
  }
  const ParameterStrip strip = StripOf(layout.zero_points.order, request, rows);
  if (layout.zero_points.bits == 4) return UnpackZeroNibbles(strip, packed, zero_points);
  UnpackZeroBytes(strip, packed, zero_points);
}

Status PackScaleStrip(const ScaleDTypes& as, const ParameterStrip& strip,
                      std::span<const float> scales, std::span<std::byte> packed) {
  if (!PackAs(as, strip, scales, packed)) return {};
  const auto bad =
      std::ranges::find_if(scales, [&](float scale) { return Changes(as.value, scale); });
  const auto index = static_cast<uint64_t>(bad - scales.begin());
  return ScaleDoesNotFit({index / strip.groups, index % strip.groups}, as.value, *bad)
      .Hint(as.value == DType::kF8E8M0 ? "The kernel multiplies with powers of two only"
                                       : "Choose activations of another dtype with --dtype");
}

void UnpackScaleStrip(const ScaleDTypes& as, const ParameterStrip& strip,
                      std::span<const std::byte> packed, std::span<float> scales) {
  switch (as.stored) {
    case DType::kBF16:
      return Unpack<BF16>(strip, packed, scales);
    case DType::kF16:
      return Unpack<F16>(strip, packed, scales);
    case DType::kU8:
    case DType::kF8E8M0:
      return Unpack<E8M0>(strip, packed, scales);
    case DType::kF8E4M3:
      return Unpack<F8E4M3>(strip, packed, scales);
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

}  // namespace prepack
