// Scales and zero points have no closed form in a Layout, so their places are found by experiment:
// a strip is packed twice with different values, and the bytes that changed are the place.

#include "prepack/inspect/places.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>

#include "prepack/base/checked.h"
#include "prepack/layouts/parameters.h"

namespace prepack {
namespace {

// Where byte `byte` of the part is in the packed buffer of a placement; nothing if it is elsewhere.
std::optional<uint64_t> InPlacement(const Placement& placement, uint64_t byte) {
  uint64_t before = 0;
  for (const Runs& runs : placement) {
    if (byte >= runs.offset) {
      const uint64_t from = byte - runs.offset;
      const uint64_t run = runs.count == 1 ? 0 : from / runs.stride;
      const uint64_t in_run = from - run * runs.stride;
      if (run < runs.count && in_run < runs.bytes) return before + run * runs.bytes + in_run;
    }
    before += runs.bytes * runs.count;
  }
  return std::nullopt;
}

// The inverse.
uint64_t InPart(const Placement& placement, uint64_t packed) {
  for (const Runs& runs : placement) {
    if (packed < runs.bytes * runs.count) {
      return runs.offset + packed / runs.bytes * runs.stride + packed % runs.bytes;
    }
    packed -= runs.bytes * runs.count;
  }
  return 0;
}

// Output channels [n0, n0 + rows) and where their numbers lie.
struct Strip {
  uint64_t n0 = 0;
  uint64_t rows = 0;
  Placement placement;
};

// The strip of `multiple` channels that byte lies in, and where in its buffer.
struct StripByte {
  Strip strip;
  uint64_t packed = 0;
};

using PlaceStrip = std::function<Placement(uint64_t n0, uint64_t rows)>;

std::optional<StripByte> FindStrip(uint64_t n, uint64_t multiple, const PlaceStrip& place,
                                   uint64_t byte) {
  for (uint64_t n0 = 0; n0 < n; n0 += multiple) {
    const uint64_t rows = std::min(multiple, n - n0);
    const Placement placement = place(n0, rows);
    if (const std::optional<uint64_t> packed = InPlacement(placement, byte)) {
      return StripByte{.strip = {.n0 = n0, .rows = rows, .placement = placement},
                       .packed = *packed};
    }
  }
  return std::nullopt;
}

// Some bits of a packed buffer, with their values in each round.
struct Cell {
  uint64_t first = 0;  // byte
  uint64_t bytes = 1;
  std::byte mask{0xFF};
};

bool Differs(const Cell& cell, std::span<const std::byte> a, std::span<const std::byte> b) {
  for (uint64_t i = cell.first; i < std::min<uint64_t>(cell.first + cell.bytes, a.size()); ++i) {
    if (((a[i] ^ b[i]) & cell.mask) != std::byte{0}) return true;
  }
  return false;
}

// Packs numbers so that the marked ones differ from the others.
using PackMarked = std::function<std::vector<std::byte>(const std::vector<bool>& marked)>;

// Finds which of `count` numbers each cell depends on. Round b marks the numbers whose index,
// counted from 1, has bit b set, so the rounds in which a cell changes spell its index. 0: none.
std::vector<uint64_t> WhichThings(uint64_t count, const std::vector<Cell>& cells,
                                  const PackMarked& pack) {
  std::vector<uint64_t> found(cells.size());
  const std::vector<std::byte> plain = pack(std::vector<bool>(count));
  for (uint32_t round = 0; round < std::bit_width(count); ++round) {
    std::vector<bool> marked(count);
    for (uint64_t i = 0; i < count; ++i) marked[i] = ((i + 1) >> round & 1U) != 0;
    const std::vector<std::byte> packed = pack(marked);
    for (size_t i = 0; i < cells.size(); ++i) {
      if (Differs(cells[i], plain, packed)) found[i] |= uint64_t{1} << round;
    }
  }
  return found;
}

PlaceStrip WeightStrips(const Layout& layout, const PackRequest& request) {
  return [&](uint64_t n0, uint64_t rows) {
    return layout.place_weight(request, {.n0 = n0, .rows = rows, .k0 = 0, .cols = request.k});
  };
}

// Packs a strip whose codes are ones in marked channels and zeros elsewhere.
std::vector<std::byte> PackMarkedChannels(const Layout& layout, const PackRequest& request,
                                          const Strip& strip, const std::vector<bool>& marked) {
  const CodeType code = request.scheme.code;
  const PanelRange range{.n0 = strip.n0, .rows = strip.rows, .k0 = 0, .cols = request.k};
  const size_t row_bytes = PanelRowBytes(code, request.k);
  std::vector<std::byte> codes(PanelBytes(code, range));
  for (uint64_t row = 0; row < strip.rows; ++row) {
    const std::byte one{static_cast<uint8_t>(IsNibble(code) ? 0x11 : 0x01)};
    if (marked[row])
      std::fill_n(codes.begin() + static_cast<ptrdiff_t>(row * row_bytes), row_bytes, one);
  }
  const std::vector<uint8_t> zero_points(
      layout.codes_need_zero_points ? strip.rows * request.groups() : 0);
  const std::vector<float> scales(layout.HoldsParameters() ? strip.rows * request.groups() : 0, 1);
  std::vector<std::byte> packed(PlacedBytes(strip.placement));
  layout.pack_codes({.request = request,
                     .tile = range,
                     .panel = range,
                     .zero_points = zero_points,
                     .scales = scales},
                    codes, packed);
  return packed;
}

// The channel whose sum is at a byte without weights.
std::optional<uint64_t> SumAt(const Layout& layout, const PackRequest& request,
                              const StripByte& at) {
  if (!layout.weight_has_extras) return std::nullopt;
  constexpr uint64_t kSumBytes = 4;
  const Cell cell{.first = at.packed / kSumBytes * kSumBytes, .bytes = kSumBytes};
  const uint64_t found = WhichThings(at.strip.rows, {cell}, [&](const std::vector<bool>& marked) {
                           return PackMarkedChannels(layout, request, at.strip, marked);
                         }).front();
  if (found == 0) return std::nullopt;
  return at.strip.n0 + found - 1;
}

// Packs scales [rows, G] that are 2 if marked and 1 otherwise, or zero points 15 and 0.
std::vector<std::byte> PackMarkedValues(const Layout& layout, const PackRequest& request,
                                        PartRole role, const Strip& strip,
                                        const std::vector<bool>& marked) {
  std::vector<std::byte> packed(PlacedBytes(strip.placement));
  if (role == PartRole::kZeroPoint) {
    std::vector<uint8_t> values;
    values.reserve(marked.size());
    for (const bool is_marked : marked) values.push_back(is_marked ? 15 : 0);
    PackZeroPoints(layout, request, strip.rows, values, packed);
  } else {
    std::vector<float> values;
    values.reserve(marked.size());
    for (const bool is_marked : marked) values.push_back(is_marked ? 2.0F : 1.0F);
    // Every form of scales can hold both numbers.
    (void)PackScales(layout, request, strip.rows, values, packed).ok();
  }
  return packed;
}

uint64_t ElementBytes(const Layout& layout, const PackRequest& request, PartRole role) {
  if (role == PartRole::kScale) return DTypeBits(layout.scales.stored.Of(request)) / 8;
  const std::vector<PartSpec> parts = layout.Parts(request);
  return std::max<uint64_t>(1, DTypeBits(FindPart(parts, role)->dtype) / 8);
}

PlaceStrip ValueStrips(const Layout& layout, const PackRequest& request, PartRole role) {
  return [&layout, &request, role](uint64_t n0, uint64_t rows) {
    return PlaceParameters(layout, request, role, n0, rows);
  };
}

}  // namespace

PartBits WherePackedCode(const Layout& layout, const PackRequest& request, uint64_t n, uint64_t j) {
  return {.bit = layout.weight_bit(request, n, j), .bits = WeightCellBits(request)};
}

PanelRange PackedCodesNear(const Layout& layout, const PackRequest& request, uint64_t byte) {
  const std::optional<StripByte> at =
      FindStrip(request.n, layout.cut(request).rows, WeightStrips(layout, request), byte);
  if (!at) return {};
  return {.n0 = at->strip.n0, .rows = at->strip.rows, .k0 = 0, .cols = request.k};
}

WeightByte WeightsAt(const Layout& layout, const PackRequest& request, uint64_t byte) {
  WeightByte found;
  const std::optional<StripByte> at =
      FindStrip(request.n, layout.cut(request).rows, WeightStrips(layout, request), byte);
  if (!at) return found;
  std::vector<std::pair<uint64_t, WeightPlace>> weights;
  for (uint64_t n = at->strip.n0; n < at->strip.n0 + at->strip.rows; ++n) {
    for (uint64_t j = 0; j < request.k; ++j) {
      const PartBits bits = WherePackedCode(layout, request, n, j);
      if (bits.bit / 8 <= byte && byte <= (bits.bit + bits.bits - 1) / 8) {
        weights.push_back({bits.bit, {.n = n, .k = j}});
      }
    }
  }
  std::ranges::sort(weights, {}, &std::pair<uint64_t, WeightPlace>::first);
  for (const auto& [bit, place] : weights) found.weights.push_back(place);
  if (weights.empty()) found.sum_of = SumAt(layout, request, *at);
  return found;
}

std::vector<GroupPlace> ValuesAt(const Layout& layout, const PackRequest& request, PartRole role,
                                 uint64_t byte) {
  const std::optional<StripByte> at = FindStrip(request.n, layout.cut(request).strip_rows,
                                                ValueStrips(layout, request, role), byte);
  if (!at) return {};
  const uint64_t element = ElementBytes(layout, request, role);
  const uint64_t groups = request.groups();
  const std::vector<Cell> cells = {{.first = at->packed, .mask = std::byte{0x0F}},
                                   {.first = at->packed, .mask = std::byte{0xF0}},
                                   {.first = at->packed / element * element, .bytes = element}};
  const std::vector<uint64_t> which =
      WhichThings(at->strip.rows * groups, cells, [&](const std::vector<bool>& marked) {
        return PackMarkedValues(layout, request, role, at->strip, marked);
      });
  std::vector<GroupPlace> found;
  const auto add = [&](uint64_t number) {
    if (number == 0) return;
    const GroupPlace place{.n = at->strip.n0 + (number - 1) / groups, .g = (number - 1) % groups};
    if (std::ranges::find(found, place) == found.end()) found.push_back(place);
  };
  add(which[0]);
  add(which[1]);
  if (found.empty()) add(which[2]);
  return found;
}

PartBits WherePackedValue(const Layout& layout, const PackRequest& request, PartRole role,
                          const GroupPlace& place) {
  const uint64_t multiple = layout.cut(request).strip_rows;
  const uint64_t groups = request.groups();
  // A number that several channels share is stored with the first of them.
  const uint64_t sharing = role == PartRole::kScale ? request.scheme.scale_rows : 1;
  for (const uint64_t n : {place.n, place.n / sharing * sharing}) {
    const uint64_t n0 = n / multiple * multiple;
    Strip strip{.n0 = n0, .rows = std::min(multiple, request.n - n0), .placement = {}};
    strip.placement = PlaceParameters(layout, request, role, n0, strip.rows);
    std::vector<bool> marked(strip.rows * groups);
    const std::vector<std::byte> plain = PackMarkedValues(layout, request, role, strip, marked);
    marked[(n - n0) * groups + place.g] = true;
    const std::vector<std::byte> packed = PackMarkedValues(layout, request, role, strip, marked);
    const auto [first, other] = std::ranges::mismatch(plain, packed);
    if (first == plain.end()) continue;
    const auto at = static_cast<uint64_t>(first - plain.begin());
    const std::byte changed = *first ^ *other;
    const bool low = (changed & std::byte{0xF0}) == std::byte{0};
    const bool high = (changed & std::byte{0x0F}) == std::byte{0};
    const uint64_t element = ElementBytes(layout, request, role);
    const std::vector<PartSpec> parts = layout.Parts(request);
    const PartSpec* part = FindPart(parts, role);
    const uint64_t part_bits =
        part == nullptr ? UINT64_MAX : TensorBytes(part->dtype, part->shape).value() * 8;
    if ((low || high) && part_bits < request.n * groups * 8) {
      return {.bit = InPart(strip.placement, at) * 8 + (high ? 4 : 0), .bits = 4};
    }
    return {.bit = InPart(strip.placement, at / element * element) * 8,
            .bits = static_cast<uint32_t>(element * 8)};
  }
  return {};
}

}  // namespace prepack
