// Every layout, for any module that it takes, cut in any way that it allows: all instruction sets
// pack the same bytes as the scalar version does of the whole; unpacking gives back what was
// packed, and packing that once more the same bytes. The same for scales and zero points.
//
// Input: layout, shape, scheme, cut, the seed of the content, then the first bytes of the content.

#include <numeric>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "layouts/requests.h"
#include "prepack/base/isa.h"
#include "prepack/layouts/fingerprint.h"
#include "prepack/layouts/parameters.h"
#include "prepack/layouts/table.h"
#include "prepack/model/panel_shape.h"

namespace prepack::fuzz {
namespace {

using testing::PanelOf;
using testing::Place;
using Bytes = std::vector<std::byte>;

// Blocks in any order and of any size, of which most are refused.
BlockedDesc MakeDesc(Input& input, uint64_t k, uint64_t n) {
  InnerBlocks inner;
  for (size_t left = input.Below(4); left > 0; --left) {
    inner.push_back({.dim = static_cast<uint32_t>(input.Below(2)), .size = input.Between(1, 20)});
  }
  BlockedDesc desc = testing::MakeDesc(k, n, inner, input.Bool(), input.Bool());
  desc.zero_point_compensation = input.Bool();
  return desc;
}

PackRequest MakeRequest(Input& input, const Layout& layout) {
  PackRequest request;
  // Most layouts want multiples. Small ones, as time goes with the number of codes.
  request.n = input.Between(1, 12) * input.OneOf({1U, 8U, 1U, 4U});
  request.k = input.Between(1, 16) * input.OneOf({1U, 16U, 8U, 4U});
  const uint64_t groups = input.Between(1, 8);
  const uint64_t group_size = request.k % groups == 0 ? request.k / groups : request.k;
  const std::vector<Scheme> schemes = ProbeSchemes(request.n, request.k, group_size);
  request.scheme = schemes[input.Below(schemes.size())];
  request.activation_dtype = input.OneOf({DType::kBF16, DType::kF16, DType::kF32});
  request.stored_scale_dtype = input.OneOf({DType::kBF16, DType::kF16, DType::kF32});
  if (input.Bool()) request.bias_dtype = input.OneOf({DType::kBF16, DType::kF16, DType::kF32});
  request.reordered = input.Bool();
  SetModuleKind(layout, request);
  request.exact_scales = input.Bool();
  if (layout.id == "onednn/w8a8" && input.Bool()) {
    request.weights_desc = MakeDesc(input, request.k, request.n);
  }
  return request;
}

// A module of random content, the first codes being those of the input.
Probe MakeContent(Input& input, const PackRequest& request) {
  SplitMix64 random(input.U64());
  Probe probe = MakeProbe(request, random);
  const std::string_view given = input.Text().substr(0, probe.codes.size());
  const bool half_bytes = IsNibble(request.scheme.code) && request.k % 2 != 0;
  for (size_t i = 0; i < given.size(); ++i) {
    const bool is_last = (i + 1) % PanelRowBytes(request.scheme.code, request.k) == 0;
    probe.codes[i] = static_cast<std::byte>(given[i]);
    if (half_bytes && is_last) probe.codes[i] &= std::byte{0x0F};
  }
  return probe;
}

// Tiles and panels that the layout allows, of any size.
TileShape MakeShape(Input& input, const TileCut& cut, const PackRequest& request) {
  const uint64_t rows = cut.rows * input.Between(1, 4);
  const uint64_t cols = std::min(request.k, std::lcm(uint64_t{8}, cut.cols) * input.Between(1, 8));
  if (cut.by_inputs && input.Bool()) {
    return {.rows = request.n, .cols = cols, .panel_rows = rows, .panel_cols = cols};
  }
  return {.rows = rows * input.Between(1, 3),
          .cols = request.k,
          .panel_rows = rows,
          .panel_cols = cols};
}

class Packing {
 public:
  Packing(const Layout& layout, const PackRequest& request, const Probe& probe)
      : layout_(layout), request_(request), probe_(probe) {}

  // The weight from tiles, each of which is unpacked and packed again.
  Bytes PackTiles(const TileShape& shape, size_t part_bytes) const {
    Bytes part(part_bytes);
    const TileGrid grid(request_.n, request_.k, shape);
    for (size_t i = 0; i < grid.size(); ++i) {
      const PanelRange tile = grid.At(i);
      const Bytes packed = PackTile(tile, shape, probe_.codes);
      UnpackTile(tile, shape, packed);
      Place(layout_.place_weight(request_, tile), packed, part);
    }
    return part;
  }

 private:
  PackJob Job(const PanelRange& tile, const PanelRange& panel) const {
    const uint64_t groups = request_.groups();
    const uint64_t first = tile.n0 * groups;
    const uint64_t count = tile.rows * groups;
    return {.request = request_,
            .tile = tile,
            .panel = panel,
            .zero_points = std::span(probe_.zero_points).subspan(first, count),
            .scales = std::span(probe_.scales).subspan(first, count)};
  }

  Bytes PackTile(const PanelRange& tile, const TileShape& shape, const Bytes& codes) const {
    Bytes packed(PlacedBytes(layout_.place_weight(request_, tile)), std::byte{0x5A});
    static_cast<void>(ForPanels(tile, shape, [&](const PanelRange& panel) -> Status {
      layout_.pack_codes(Job(tile, panel), PanelOf(request_, codes, panel), packed);
      return {};
    }));
    return packed;
  }

  void UnpackTile(const PanelRange& tile, const TileShape& shape, const Bytes& packed) const {
    static_cast<void>(ForPanels(tile, shape, [&](const PanelRange& panel) -> Status {
      Bytes codes(PanelBytes(request_.scheme.code, panel), std::byte{0xA5});
      layout_.unpack_codes(Job(tile, panel), packed, codes);
      Demand(codes == PanelOf(request_, probe_.codes, panel), "unpacking is the inverse of packing",
             testing::Name(layout_, request_));
      return {};
    }));
  }

  const Layout& layout_;
  const PackRequest& request_;
  const Probe& probe_;
};

void CheckWeight(const Layout& layout, const PackRequest& request, const Probe& probe,
                 const TileShape& shape) {
  const std::vector<PartSpec> parts = layout.Parts(request);
  const PartSpec* weight = FindPart(parts, PartRole::kWeight);
  const std::optional<uint64_t> part_bytes = TensorBytes(weight->dtype, weight->shape);
  Demand(part_bytes.has_value(), "the weight has a size", layout.id);
  const Bytes whole = PackWhole(layout, request, probe, PartRole::kWeight);
  Demand(whole.size() == *part_bytes, "the packed weight has the size of the part", layout.id);
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    const std::string name = fmt::format("{} {}", IsaName(isa), testing::Name(layout, request));
    Demand(PackWhole(layout, request, probe, PartRole::kWeight) == whole,
           "all instruction sets pack the same bytes", name);
    Demand(Packing(layout, request, probe).PackTiles(shape, whole.size()) == whole,
           "tiles are packed as the whole is", name);
  }
}

void CheckScales(const Layout& layout, const PackRequest& request, const Probe& probe) {
  if (!layout.HasScales()) return;
  if (FindPart(layout.Parts(request), PartRole::kScale) == nullptr) return;
  Bytes packed(PlacedBytes(PlaceParameters(layout, request, PartRole::kScale, 0, request.n)));
  const Status status = PackScales(layout, request, request.n, probe.scales, packed);
  if (!status.ok()) return DemandGoodError(status);
  std::vector<float> scales(probe.scales.size());
  UnpackScales(layout, request, request.n, packed, scales);
  Bytes again(packed.size());
  Demand(PackScales(layout, request, request.n, scales, again).ok() && again == packed,
         "scales that were packed stay as they are", testing::Name(layout, request));
}

void CheckZeroPoints(const Layout& layout, const PackRequest& request, const Probe& probe) {
  if (FindPart(layout.Parts(request), PartRole::kZeroPoint) == nullptr) return;
  const Bytes packed = PackWhole(layout, request, probe, PartRole::kZeroPoint);
  std::vector<uint8_t> zero_points(probe.zero_points.size());
  UnpackZeroPoints(layout, request, request.n, packed, zero_points);
  Demand(zero_points == probe.zero_points, "zero points come back", testing::Name(layout, request));
}

void Run(Input input) {
  const LayoutTable layouts = AllLayouts();
  const Layout& layout = layouts[input.Below(layouts.size())];
  const PackRequest request = MakeRequest(input, layout);
  const Eligibility verdict = layout.eligible(request);
  Demand(verdict.ok == verdict.reason.empty(), "exactly a refusal has a reason", layout.id);
  if (!verdict.ok) return;
  const TileShape shape = MakeShape(input, layout.cut(request), request);
  const Probe probe = MakeContent(input, request);
  CheckWeight(layout, request, probe, shape);
  CheckScales(layout, request, probe);
  CheckZeroPoints(layout, request, probe);
}

}  // namespace
}  // namespace prepack::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  prepack::fuzz::Run({data, size});
  return 0;
}
