// Properties of packing and unpacking that hold for every layout in the table.

#include "catch.h"
#include "layouts/requests.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/isa.h"
#include "prepack/layouts/parameters.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

constexpr std::byte kPoison{0xA5};
constexpr std::byte kOtherPoison{0x5A};
constexpr size_t kGuard = 64;  // bytes behind a buffer that nobody may touch

// A buffer of `count` bytes full of poison, with a guard behind it.
class Guarded {
 public:
  explicit Guarded(size_t count, std::byte poison = kPoison)
      : bytes_(count + kGuard, poison), count_(count), poison_(poison) {}
  std::span<std::byte> span() { return std::span(bytes_).first(count_); }
  bool GuardIsIntact() const {
    return std::all_of(bytes_.begin() + static_cast<std::ptrdiff_t>(count_), bytes_.end(),
                       [this](std::byte b) { return b == poison_; });
  }
  std::vector<std::byte> Copy() const {
    return {bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(count_)};
  }

 private:
  std::vector<std::byte> bytes_;
  size_t count_;
  std::byte poison_;
};

// A panel of a tile, with the tile's share of the other numbers.
PackJob JobFor(const PackRequest& request, const Probe& probe, const PanelRange& tile,
               const PanelRange& panel) {
  const uint64_t first = tile.n0 * request.groups();
  const uint64_t count = tile.rows * request.groups();
  return {.request = request,
          .tile = tile,
          .panel = panel,
          .zero_points = std::span(probe.zero_points).subspan(first, count),
          .scales = std::span(probe.scales).subspan(first, count),
          .bias = std::span(probe.bias).subspan(tile.n0, tile.rows)};
}

// With a bias, for layouts whose weight holds it.
Probe MakeProbeWithBias(const PackRequest& request, SplitMix64& random) {
  Probe probe = MakeProbe(request, random);
  for (uint64_t n = 0; n < request.n; ++n) {
    probe.bias.push_back(static_cast<float>(random.Below(1000)) - 500);
  }
  return probe;
}

using PackFn = decltype(Layout::pack_codes);

// A tile packed panel by panel, over poison: a byte that nobody writes shows. `codes_of` gives what
// `pack` takes of a panel.
template <typename CodesOf>
std::vector<std::byte> PackTile(const Layout& layout, const PackRequest& request,
                                const Probe& probe, const PanelRange& tile, const TileShape& shape,
                                std::byte poison, PackFn pack, CodesOf codes_of) {
  Guarded packed(PlacedBytes(layout.place_weight(request, tile)), poison);
  static_cast<void>(ForPanels(tile, shape, [&](const PanelRange& panel) -> Status {
    pack(JobFor(request, probe, tile, panel), codes_of(panel), packed.span());
    return {};
  }));
  CHECK(packed.GuardIsIntact());
  return packed.Copy();
}

// The codes of a panel by input channel.
std::vector<std::byte> ColumnsOf(const PackRequest& request, const Probe& probe,
                                 const PanelRange& panel) {
  const std::vector<std::byte> rows = PanelOf(request, probe.codes, panel);
  std::vector<std::byte> columns(panel.cols * panel.rows / 2);
  for (uint64_t row = 0; row < panel.rows; ++row) {
    for (uint64_t col = 0; col < panel.cols; ++col) {
      const unsigned code = PanelCode(request.scheme.code, rows, panel.cols, row, col);
      columns[col * panel.rows / 2 + row / 2] |= static_cast<std::byte>(code << row % 2 * 4);
    }
  }
  return columns;
}

// The weight part, from tiles.
std::vector<std::byte> PackTiles(const Layout& layout, const PackRequest& request,
                                 const Probe& probe, const TileShape& shape, std::byte poison) {
  const TileGrid grid(request.n, request.k, shape);
  const PartSpec weight = *FindPart(layout.Parts(request), PartRole::kWeight);
  std::vector<std::byte> part(TensorBytes(weight.dtype, weight.shape).value());
  for (size_t i = 0; i < grid.size(); ++i) {
    const PanelRange tile = grid.At(i);
    const std::vector<std::byte> packed =
        PackTile(layout, request, probe, tile, shape, poison, layout.pack_codes,
                 [&](const PanelRange& panel) { return PanelOf(request, probe.codes, panel); });
    if (layout.pack_columns != nullptr) {
      CHECK(PackTile(layout, request, probe, tile, shape, poison, layout.pack_columns,
                     [&](const PanelRange& panel) { return ColumnsOf(request, probe, panel); }) ==
            packed);
    }
    Place(layout.place_weight(request, tile), packed, part);
    // And back, panel by panel.
    static_cast<void>(ForPanels(tile, shape, [&](const PanelRange& panel) -> Status {
      const std::vector<std::byte> codes = PanelOf(request, probe.codes, panel);
      Guarded unpacked(codes.size(), poison);
      layout.unpack_codes({.request = request, .tile = tile, .panel = panel}, packed,
                          unpacked.span());
      CHECK(unpacked.GuardIsIntact());
      CHECK(unpacked.Copy() == codes);
      return {};
    }));
  }
  return part;
}

TEST_CASE("unpack is the inverse of pack, however a module is cut, on every instruction set") {
  SplitMix64 random(1);
  for (const Layout& layout : AllLayouts()) {
    const std::vector<PackRequest> requests = RequestsFor(layout);
    INFO(layout.id
         << " takes few of the modules that layouts are tested with (layouts/fingerprint.h)");
    REQUIRE(requests.size() > 20);
    for (const PackRequest& request : requests) {
      INFO(Name(layout, request));
      const Probe probe = MakeProbeWithBias(request, random);
      const std::vector<std::byte> whole = PackWhole(layout, request, probe, PartRole::kWeight);
      for (const Isa isa : SupportedIsas()) {
        const ScopedIsa scope(isa);
        const TileShape one{
            .rows = request.n, .cols = request.k, .panel_rows = request.n, .panel_cols = request.k};
        CHECK(PackTiles(layout, request, probe, one, kPoison) == whole);
        CHECK(PackTiles(layout, request, probe, SmallTiles(layout, request, false), kOtherPoison) ==
              whole);
        if (!layout.cut(request).by_inputs) continue;
        CHECK(PackTiles(layout, request, probe, SmallTiles(layout, request, true), kPoison) ==
              whole);
      }
    }
  }
}

unsigned BitsAt(const std::vector<std::byte>& bytes, uint64_t bit, uint32_t count) {
  const auto byte = [&](uint64_t i) { return std::to_integer<unsigned>(bytes.at(i)); };
  if (count == 4) return byte(bit / 8) >> bit % 8 & 15U;
  const unsigned low = byte(bit / 8);
  return count == 8 ? low : low | byte(bit / 8 + 1) << 8;
}

TEST_CASE("layouts with neighbouring output channels side by side take codes by input channel") {
  std::vector<std::string> ids;
  for (const Layout& layout : AllLayouts()) {
    if (layout.pack_columns != nullptr) ids.emplace_back(layout.id);
  }
  CHECK(ids == std::vector<std::string>{"vllm-cpu/wna16", "onednn/w4a16", "onednn/w4a8"});
}

TEST_CASE("every weight lies where the closed form says") {
  SplitMix64 random(4);
  for (const Layout& layout : AllLayouts()) {
    size_t checked = 0;
    for (const PackRequest& request : RequestsFor(layout)) {
      if (request.n * request.k > 40'000) continue;
      INFO(Name(layout, request));
      const Probe probe = MakeProbe(request, random);
      const std::vector<std::byte> packed = PackWhole(layout, request, probe, PartRole::kWeight);
      const CodeType code = request.scheme.code;
      // Signed nibbles are stored with another top bit: all of them, or none.
      const unsigned first = PanelBits(code, probe.codes, request.k, 0, 0);
      const unsigned mask =
          BitsAt(packed, layout.weight_bit(request, 0, 0), CodeBits(code)) ^ first;
      CHECK((mask == 0 || (mask == 8 && IsNibble(code))));
      size_t elsewhere = 0;
      for (uint64_t n = 0; n < request.n; ++n) {
        for (uint64_t k = 0; k < request.k; ++k) {
          const unsigned found =
              BitsAt(packed, layout.weight_bit(request, n, k), CodeBits(code)) ^ mask;
          elsewhere += found == PanelBits(code, probe.codes, request.k, n, k) ? 0 : 1;
        }
      }
      CHECK(elsewhere == 0);
      ++checked;
    }
    INFO(layout.id);
    CHECK(checked > 4);
  }
}

TEST_CASE("what is neither a weight nor a sum is zero") {
  SplitMix64 random(6);
  size_t padded = 0;
  for (const Layout& layout : AllLayouts()) {
    for (const PackRequest& request : RequestsFor(layout)) {
      // Sums are of the weights: where all of these are zero, so are they.
      // Records that hold scales also repeat their last channel.
      if (request.n * request.k > 40'000 || layout.id == "vllm-cpu/int4-w4a8") continue;
      if (layout.HoldsParameters()) continue;
      INFO(Name(layout, request));
      Probe probe = MakeProbe(request, random);
      std::vector<std::byte> packed = PackWhole(layout, request, probe, PartRole::kWeight);
      const uint32_t bits = CodeBits(request.scheme.code);
      std::vector<bool> is_weight(packed.size() * 8 / bits);
      for (uint64_t n = 0; n < request.n; ++n) {
        for (uint64_t k = 0; k < request.k; ++k) {
          is_weight[layout.weight_bit(request, n, k) / bits] = true;
        }
      }
      std::ranges::fill(probe.codes, std::byte{0});
      packed = PackWhole(layout, request, probe, PartRole::kWeight);
      size_t not_zero = 0;
      for (size_t i = 0; i < is_weight.size(); ++i) {
        padded += is_weight[i] ? 0 : 1;
        not_zero += !is_weight[i] && BitsAt(packed, i * bits, bits) != 0 ? 1 : 0;
      }
      CHECK(not_zero == 0);
    }
  }
  CHECK(padded > 100'000);
}

TEST_CASE("scales that the weight holds lie where the layout says") {
  SplitMix64 random(7);
  size_t checked = 0;
  for (const Layout& layout : AllLayouts()) {
    if (!layout.HoldsParameters()) continue;
    for (const PackRequest& request : RequestsFor(layout)) {
      if (request.n * request.k > 40'000) continue;
      INFO(Name(layout, request));
      const Probe probe = MakeProbe(request, random);
      const std::vector<std::byte> packed = PackWhole(layout, request, probe, PartRole::kWeight);
      const uint64_t strip = layout.cut(request).strip_rows;
      const DType value = layout.scales.value.Of(request);
      for (uint64_t n0 = 0; n0 < request.n; n0 += strip) {
        const uint64_t rows = std::min(strip, request.n - n0);
        std::vector<std::byte> gathered;
        RequireOk(ForPieces(
            PlaceParameters(layout, request, PartRole::kScale, n0, rows),
            [&](uint64_t offset, uint64_t bytes) -> Status {
              const auto from = packed.begin() + static_cast<std::ptrdiff_t>(offset);
              gathered.insert(gathered.end(), from, from + static_cast<std::ptrdiff_t>(bytes));
              return {};
            }));
        std::vector<float> scales(rows * request.groups());
        UnpackScales(layout, request, rows, gathered, scales);
        for (size_t i = 0; i < scales.size(); ++i) {
          CHECK(scales[i] == RoundTo(value, probe.scales[n0 * request.groups() + i]));
        }
        ++checked;
      }
    }
  }
  CHECK(checked > 100);
}

TEST_CASE("scales and zero points come back") {
  SplitMix64 random(3);
  for (const Layout& layout : AllLayouts()) {
    for (const PackRequest& request : RequestsFor(layout)) {
      INFO(Name(layout, request));
      Probe probe = MakeProbe(request, random);
      if (layout.HasScales()) {
        // Far from what f16 cannot hold; exponents hold all that there are.
        const float factor = request.scheme.code == CodeType::kF4E2M1 ? 1 : 64;
        for (float& scale : probe.scales) scale *= factor;
        // Where the weight holds them, a strip at a time has a place.
        Guarded packed(
            layout.HoldsParameters()
                ? probe.scales.size() * DTypeBits(layout.scales.stored.Of(request)) / 8
                : PlacedBytes(PlaceParameters(layout, request, PartRole::kScale, 0, request.n)));
        REQUIRE(PackScales(layout, request, request.n, probe.scales, packed.span()).ok());
        CHECK(packed.GuardIsIntact());
        std::vector<float> unpacked(probe.scales.size());
        UnpackScales(layout, request, request.n, packed.span(), unpacked);
        const DType dtype = layout.scales.value.Of(request);
        for (float& scale : probe.scales) scale = RoundTo(dtype, scale);
        CHECK(unpacked == probe.scales);
      }
      if (FindPart(layout.Parts(request), PartRole::kZeroPoint) == nullptr) continue;
      Guarded zeros(
          PlacedBytes(PlaceParameters(layout, request, PartRole::kZeroPoint, 0, request.n)));
      PackZeroPoints(layout, request, request.n, probe.zero_points, zeros.span());
      CHECK(zeros.GuardIsIntact());
      std::vector<uint8_t> back(probe.zero_points.size());
      UnpackZeroPoints(layout, request, request.n, zeros.span(), back);
      CHECK(back == probe.zero_points);
    }
  }
}

}  // namespace
}  // namespace prepack::testing
