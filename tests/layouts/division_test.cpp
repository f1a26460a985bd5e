// What PartSpec says about modules side by side holds: packed pieces put together are the packed
// whole, and a piece of the packed whole is the packed piece.

#include <cstring>
#include <set>

#include "catch.h"
#include "layouts/requests.h"
#include "prepack/kernels/kernels.h"
#include "prepack/layouts/placement.h"

namespace prepack::testing {
namespace {

constexpr uint64_t kMostWeights = 300'000;  // of a module; larger ones are only slow

// A module, or a piece of one that begins at channel (n0, k0) of it.
struct Module {
  PackRequest request;
  Probe probe;
  uint64_t n0 = 0;
};

// With a bias, if the layout takes one.
Module WholeOf(const Layout& layout, PackRequest request, SplitMix64& random) {
  request.bias_dtype = DType::kF32;
  if (!layout.eligible(request).ok) request.bias_dtype.reset();
  return {.request = request, .probe = MakeProbe(request, random)};
}

std::vector<std::byte> CodesOf(const Module& whole, const PanelRange& range) {
  const CodeType code = whole.request.scheme.code;
  const uint64_t row_bytes = PanelRowBytes(code, range.cols);
  std::vector<std::byte> codes(PanelBytes(code, range));
  for (uint64_t row = 0; row < range.rows; ++row) {
    for (uint64_t col = 0; col < range.cols; ++col) {
      const unsigned bits =
          PanelBits(code, whole.probe.codes, whole.request.k, range.n0 + row, range.k0 + col);
      const uint64_t bit = col * CodeBits(code);
      std::byte* at = &codes[row * row_bytes + bit / 8];
      *at |= static_cast<std::byte>(bits << bit % 8);
      if (code == CodeType::kBF16) at[1] = static_cast<std::byte>(bits >> 8);
    }
  }
  return codes;
}

PackRequest RequestOf(const PackRequest& whole, const PanelRange& range) {
  PackRequest piece = whole;
  piece.n = range.rows;
  piece.k = range.cols;
  const Granularity granularity = whole.scheme.granularity;
  const bool tensor = granularity == Granularity::kTensor;
  if (tensor || granularity == Granularity::kChannel) piece.scheme.group_size = range.cols;
  if (tensor) piece.scheme.scale_rows = range.rows;
  if (whole.weights_desc) {
    const BlockedDesc& desc = *whole.weights_desc;
    piece.weights_desc = MakeDesc(range.cols, range.rows, desc.inner,
                                  desc.strides[1] >= desc.strides[0], desc.s8s8_compensation);
  }
  return piece;
}

// Pieces begin at whole groups, or there is one group.
Module PieceOf(const Module& whole, const PanelRange& range) {
  Module piece{.request = RequestOf(whole.request, range), .probe = {}, .n0 = range.n0};
  piece.probe.codes = CodesOf(whole, range);
  const uint64_t first_group = range.k0 / whole.request.scheme.group_size;
  for (uint64_t row = 0; row < range.rows; ++row) {
    for (uint64_t g = 0; g < piece.request.groups(); ++g) {
      const uint64_t at = (range.n0 + row) * whole.request.groups() + first_group + g;
      piece.probe.scales.push_back(whole.probe.scales[at]);
      piece.probe.zero_points.push_back(whole.probe.zero_points[at]);
    }
  }
  return piece;
}

std::vector<std::byte> SumsOf(const Module& module) {
  const auto [n, k] = std::pair(module.request.n, module.request.k);
  std::vector<int32_t> sums(n);
  KernelsFor(Isa::kScalar)
      .sum_rows(reinterpret_cast<const int8_t*>(module.probe.codes.data()), k, n, k, sums.data());
  std::vector<std::byte> packed(n * sizeof(float));
  PackScaledSums(DType::kF32, sums, module.probe.scales, packed);
  return packed;
}

// Elements that are different for every channel.
std::vector<std::byte> BiasOf(const Module& module, const PartSpec& part) {
  const uint64_t bytes = DTypeBits(part.dtype) / 8;
  std::vector<std::byte> bias(module.request.n * bytes);
  for (uint64_t n = 0; n < module.request.n; ++n) {
    const auto value = static_cast<uint16_t>(module.n0 + n);
    std::memcpy(&bias[n * bytes], &value, sizeof value);
  }
  return bias;
}

std::vector<std::byte> BytesOf(const Layout& layout, const Module& module, const PartSpec& part) {
  switch (part.role) {
    case PartRole::kWeightSum:
      return SumsOf(module);
    case PartRole::kBias:
      return BiasOf(module, part);
    case PartRole::kInputOrder:  // the same for all output channels
    case PartRole::kInputScale:
    case PartRole::kInputZeroPoint:
      return std::vector<std::byte>(TensorBytes(part.dtype, part.shape).value(), std::byte{7});
    default:
      return PackWhole(layout, module.request, module.probe, part.role);
  }
}

// Channels [begin, end) of `total`, along N or along K.
struct Cut {
  uint64_t begin;
  uint64_t end;
  uint64_t total;
};

// Those channels of the packed bytes of the whole.
std::vector<std::byte> CutOut(const PartSpec& part, const Division& division,
                              const std::vector<std::byte>& bytes, const Cut& cut) {
  if (division.kind == Division::Kind::kWhole) return bytes;
  const std::vector<uint64_t>& view = part.view.empty() ? part.shape : part.view;
  REQUIRE(TensorBytes(part.dtype, view) == TensorBytes(part.dtype, part.shape));
  const uint64_t units = CeilDiv(cut.total, division.unit);
  const uint64_t indices = view[division.axis] / units;  // of the axis, per unit
  REQUIRE(indices * units == view[division.axis]);

  uint64_t index_bytes = DTypeBits(part.dtype) / 8;
  for (size_t axis = division.axis + 1; axis < view.size(); ++axis) index_bytes *= view[axis];
  const uint64_t step = view[division.axis] * index_bytes;
  const uint64_t begin = cut.begin / division.unit * indices * index_bytes;
  const uint64_t end = CeilDiv(cut.end, division.unit) * indices * index_bytes;
  std::vector<std::byte> piece;
  for (uint64_t outer = 0; outer < bytes.size(); outer += step) {
    const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(outer);
    piece.insert(piece.end(), from + static_cast<std::ptrdiff_t>(begin),
                 from + static_cast<std::ptrdiff_t>(end));
  }
  return piece;
}

// Where a module can be cut so that every part that can be cut there is. Where the weight cannot,
// the other parts are compared all the same, at multiples that any layout takes.
uint64_t UnitOf(const std::vector<PartSpec>& parts, Division PartSpec::*by) {
  const PartSpec& weight = *FindPart(parts, PartRole::kWeight);
  uint64_t unit = (weight.*by).kind == Division::Kind::kNever ? 128 : 1;
  for (const PartSpec& part : parts) {
    if ((part.*by).kind == Division::Kind::kAlong) unit = std::lcm(unit, (part.*by).unit);
  }
  return unit;
}

// Compares each part of the piece with what is cut out of the whole. Both pieces of a module
// together are all of it, so this says as much about putting them together.
void CheckPiece(const Layout& layout, const Module& whole, const PanelRange& range,
                Division PartSpec::*by, const Cut& cut) {
  const Module piece = PieceOf(whole, range);
  const Eligibility verdict = layout.eligible(piece.request);
  INFO(verdict.reason);
  REQUIRE(verdict.ok);
  for (const PartSpec& part : layout.Parts(whole.request)) {
    const Division& division = part.*by;
    if (division.kind == Division::Kind::kNever) continue;
    INFO(part.name << " " << cut.begin << " to " << cut.end);
    const std::vector<PartSpec> parts = layout.Parts(piece.request);
    const PartSpec* of_piece = FindPart(parts, part.role);
    REQUIRE(of_piece != nullptr);
    CHECK(of_piece->dtype == part.dtype);
    const bool equal = CutOut(part, division, BytesOf(layout, whole, part), cut) ==
                       BytesOf(layout, piece, *of_piece);
    CHECK(equal);
  }
}

// Calls check(whole module) for modules of every layout; each must be cut at least a few times.
template <typename Check>
void ForModules(Check check) {
  SplitMix64 random(5);
  for (const Layout& layout : AllLayouts()) {
    size_t cuts = 0;
    for (const PackRequest& request : RequestsFor(layout)) {
      if (request.n * request.k > kMostWeights) continue;
      INFO(Name(layout, request));
      if (check(layout, WholeOf(layout, request, random))) ++cuts;
    }
    INFO(layout.id);
    CHECK(cuts > 4);
  }
}

TEST_CASE("pieces of the output channels go together as the parts say") {
  ForModules([](const Layout& layout, const Module& whole) {
    const auto [n, k] = std::pair(whole.request.n, whole.request.k);
    const uint64_t unit = UnitOf(layout.Parts(whole.request), &PartSpec::by_outputs);
    if (unit >= n) return false;
    for (const auto& [begin, end] : {std::pair(uint64_t{0}, unit), std::pair(unit, n)}) {
      CheckPiece(layout, whole, {.n0 = begin, .rows = end - begin, .k0 = 0, .cols = k},
                 &PartSpec::by_outputs, {.begin = begin, .end = end, .total = n});
    }
    return true;
  });
}

TEST_CASE("pieces of the input channels go together as the parts say") {
  ForModules([](const Layout& layout, const Module& whole) {
    const auto [n, k] = std::pair(whole.request.n, whole.request.k);
    const uint64_t groups = whole.request.groups() > 1 ? whole.request.scheme.group_size : 1;
    const uint64_t unit =
        std::lcm(UnitOf(layout.Parts(whole.request), &PartSpec::by_inputs), groups);
    if (unit >= k) return false;
    for (const auto& [begin, end] : {std::pair(uint64_t{0}, unit), std::pair(unit, k)}) {
      CheckPiece(layout, whole, {.n0 = 0, .rows = n, .k0 = begin, .cols = end - begin},
                 &PartSpec::by_inputs, {.begin = begin, .end = end, .total = k});
    }
    return true;
  });
}

// "LAYOUT PART" of all parts of that kind, in any module that the layout takes.
std::set<std::string> PartsThatAre(Division::Kind kind, Division PartSpec::*by) {
  std::set<std::string> names;
  for (const Layout& layout : AllLayouts()) {
    for (const PackRequest& request : RequestsFor(layout)) {
      for (const PartSpec& part : layout.Parts(request)) {
        const bool common = part.role == PartRole::kInputOrder;
        if ((part.*by).kind != kind) continue;
        names.insert(fmt::format("{} {}", common ? "any" : layout.id, part.name));
      }
    }
  }
  return names;
}

TEST_CASE("only these parts cannot be cut") {
  CHECK(PartsThatAre(Division::Kind::kNever, &PartSpec::by_outputs) ==
        std::set<std::string>{"onednn/w8a8 weight", "zentorch/int8-dlp weight"});
  CHECK(PartsThatAre(Division::Kind::kNever, &PartSpec::by_inputs) ==
        std::set<std::string>{"any input_order", "kt/amxint4 weight", "kt/amxint8 weight",
                              "onednn/w8a8 weight", "onednn/w8a8 weight_sum",
                              "vllm-arm/int4-w4a8 weight", "vllm-arm/int8-plain azp_adj",
                              "vllm-cpu/int8-plain azp_adj", "vllm-cpu/int8-vnni weight",
                              "zentorch/int8-dlp weight"});
}

TEST_CASE("of oneDNN's forms exactly those with sums cannot be cut") {
  for (const PackRequest& request : RequestsFor(*FindLayout("onednn/w8a8"))) {
    const bool sums = !request.weights_desc || request.weights_desc->s8s8_compensation;
    const std::vector<PartSpec> parts = FindLayout("onednn/w8a8")->Parts(request);
    const PartSpec& weight = *FindPart(parts, PartRole::kWeight);
    CHECK((weight.by_outputs.kind == Division::Kind::kNever) == sums);
    CHECK((weight.by_inputs.kind == Division::Kind::kNever) == sums);
  }
}

}  // namespace
}  // namespace prepack::testing
