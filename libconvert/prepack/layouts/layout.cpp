#include "prepack/layouts/layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace prepack {
namespace {

constexpr Condition kHasBias{"the module has a bias",
                             [](const PackRequest& r) { return r.bias_dtype.has_value(); }};
constexpr StoredDType kBiasAsStored{
    "dtype of the source", [](const PackRequest& r) { return r.bias_dtype.value_or(DType::kF32); }};
constexpr Condition kHasOrder{"the module has activation order",
                              [](const PackRequest& r) { return r.reordered; }};

// Of one number per output channel.
PartRow ChannelPart(PartRole role, std::string_view name, const StoredDType& dtype) {
  return {.role = role,
          .name = name,
          .dtype = dtype,
          .shape = {symbol::kN},
          .by_outputs = DivisionRow::Along(0, 1),
          .by_inputs = DivisionRow::Whole()};
}

PartRow InputPart(PartRole role, std::string_view name, DType dtype, const Condition& when) {
  return {.role = role,
          .name = name,
          .dtype = dtype,
          .shape = {1},
          .by_outputs = DivisionRow::Whole(),
          .by_inputs = DivisionRow::Whole(),
          .when = when};
}

// `bits` of a parameter, several of which may share an element.
PartRow ParameterPart(ParameterOrder order, PartRole role, const StoredDType& dtype,
                      uint64_t per_element) {
  constexpr uint64_t kBlock = kParameterBlock;
  PartRow part{.role = role,
               .name = role == PartRole::kScale ? "weight_scale" : "weight_zero_point",
               .dtype = dtype};
  if (order == ParameterOrder::kBlocks) {
    part.shape = {{"N/32", [](const PackRequest& r) { return r.n / kBlock; }}, symbol::kG, kBlock};
    part.by_outputs = DivisionRow::Along(0, kBlock);
    part.by_inputs = DivisionRow::AlongGroups(1);
    return part;
  }
  Extent channels = symbol::kN;
  if (per_element == 2) channels = {"N/2", [](const PackRequest& r) { return r.n / 2; }};
  if (per_element == 8) channels = {"N/8", [](const PackRequest& r) { return r.n / 8; }};
  part.shape = {symbol::kG, channels};
  part.by_outputs = DivisionRow::Along(1, per_element);
  part.by_inputs = DivisionRow::AlongGroups(0);
  return part;
}

void AppendScales(const ScaleRow& scales, std::vector<PartRow>& parts) {
  if (!scales.parts.empty()) {
    parts.insert(parts.end(), scales.parts.begin(), scales.parts.end());
    return;
  }
  if (scales.order == ParameterOrder::kGroups || scales.order == ParameterOrder::kBlocks) {
    parts.push_back(ParameterPart(scales.order, PartRole::kScale, scales.stored, 1));
  } else if (scales.order == ParameterOrder::kChannels) {
    parts.push_back(ChannelPart(PartRole::kScale, "weight_scale", scales.stored));
  } else if (scales.order == ParameterOrder::kSquares) {
    PartRow squares{
        .role = PartRole::kScale,
        .name = "weight_scale_inv",
        .dtype = scales.stored,
        .shape = {{"⌈N/r⌉", [](const PackRequest& r) { return CeilDiv(r.n, r.scheme.scale_rows); }},
                  {"⌈K/128⌉", [](const PackRequest& r) { return CeilDiv(r.k, kSquareInputs); }}},
        .by_outputs =
            DivisionRow::Along(0, {"r", [](const PackRequest& r) { return r.scheme.scale_rows; }}),
        .by_inputs = DivisionRow::Along(1, kSquareInputs),
        .when = {"scales per block",
                 [](const PackRequest& r) { return r.scheme.granularity == Granularity::kBlock; }}};
    parts.push_back(squares);
    squares.by_outputs = DivisionRow::Whole();
    squares.when = {"scales per tensor", [](const PackRequest& r) {
                      return r.scheme.granularity == Granularity::kTensor;
                    }};
    parts.push_back(squares);
    parts.push_back(ChannelPart(PartRole::kScale, "weight_scale", scales.stored));
    parts.back().when = symbol::kScalesPerChannel;
  }
}

Division DivisionFor(const DivisionRow& row, const PackRequest& request) {
  if (row.by_groups && request.groups() == 1) return Division::Whole();
  return {.kind = row.kind, .axis = row.axis, .unit = row.unit.Of(request)};
}

std::vector<uint64_t> ShapeFor(const Extents& extents, const PackRequest& request) {
  std::vector<uint64_t> shape;
  shape.reserve(extents.size());
  for (const Extent& extent : extents) shape.push_back(extent.Of(request));
  return shape;
}

PartSpec SpecFor(const PartRow& row, const PackRequest& request) {
  return {.role = row.role,
          .name = row.name,
          .dtype = row.dtype.Of(request),
          .shape = ShapeFor(row.shape, request),
          .by_outputs = DivisionFor(row.by_outputs, request),
          .by_inputs = DivisionFor(row.by_inputs, request),
          .view = ShapeFor(row.view, request)};
}

// From the part of one expert to that of all of them.
void StackPart(const PackRequest& request, PartSpec& part) {
  part.shape.insert(part.shape.begin(), request.experts);
  if (!part.view.empty()) part.view.insert(part.view.begin(), request.experts);
  part.by_outputs = Division::Along(0, request.n_of_expert());
  ++part.by_inputs.axis;
}

}  // namespace

std::vector<PartRow> Layout::PartRows() const {
  std::vector<PartRow> parts = {weight};
  AppendScales(scales, parts);
  if (zero_points.form != nullptr) {
    parts.insert(parts.end(), zero_points.form->parts.begin(), zero_points.form->parts.end());
  } else if (zero_points.order != ParameterOrder::kNone) {
    parts.push_back(ParameterPart(zero_points.order, PartRole::kZeroPoint, zero_points.dtype,
                                  DTypeBits(zero_points.dtype) / zero_points.bits));
    parts.back().when = zero_points.when;
  }
  if (!weight_sums.name.empty()) {
    parts.push_back(ChannelPart(PartRole::kWeightSum, weight_sums.name, DType::kF32));
    parts.back().by_inputs = DivisionRow::Never();  // a sum over all of K
    parts.back().when = weight_sums.when;
  }
  if (static_activations) {
    parts.push_back(
        InputPart(PartRole::kInputScale, "input_scale", DType::kF32, symbol::kStaticActivations));
    parts.push_back(InputPart(PartRole::kInputZeroPoint, "input_zero_point", DType::kI32,
                              symbol::kStaticAsymmetricActivations));
  }
  parts.push_back(ChannelPart(PartRole::kBias, "bias", checkpoint ? kBiasAsStored : bias));
  parts.back().when = kHasBias;
  if (checkpoint) {
    parts.insert(parts.end(), side_parts.begin(), side_parts.end());
    return parts;
  }
  parts.push_back(ChannelPart(PartRole::kInputOrder, "input_order", DType::kI32));
  parts.back().shape = {symbol::kK};
  parts.back().by_outputs = DivisionRow::Whole();
  parts.back().by_inputs = DivisionRow::Never();
  parts.back().when = kHasOrder;
  return parts;
}

std::vector<PartSpec> Layout::Parts(const PackRequest& request) const {
  const PackRequest one = OfOneExpert(request);
  std::vector<PartSpec> parts;
  for (const PartRow& row : PartRows()) {
    if (row.when.Of(one)) parts.push_back(SpecFor(row, one));
  }
  if (divide_weight != nullptr) divide_weight(one, parts.front());
  if (request.stacked()) {
    for (PartSpec& part : parts) StackPart(request, part);
  }
  return parts;
}

std::string Layout::TensorName(std::string_view module, const PartSpec& part) const {
  if (tensor_name != nullptr) return tensor_name(module, part);
  return fmt::format("{}.{}", module, part.name);
}

Eligibility Layout::Takes(const PackRequest& request) const {
  if (request.embedding && !takes_embeddings) {
    return Eligibility::No(
        checkpoint ? "the module is an embedding, which prepack writes in bf16 only"
                   : "the module is an embedding, which looks rows up and multiplies nothing");
  }
  if (!request.stacked()) return eligible(request);
  if (request.n % request.experts != 0) {
    return Eligibility::No(
        fmt::format("N = {} is not a multiple of the {} experts", request.n, request.experts));
  }
  const PackRequest one = OfOneExpert(request);
  if (Eligibility single = eligible(one); !single.ok) return single;
  if (!stacks_experts || !expert_op.Of(one)) {
    return Eligibility::No("the runtime has no op that reads all experts of a layer as one tensor");
  }
  if (request.reordered) return Eligibility::No("each expert has an activation order of its own");
  // Weights that are dequantized have no scales.
  if (one.scheme.code != CodeType::kBF16 && one.n % one.scheme.scale_rows != 0) {
    return Eligibility::No(fmt::format(
        "blocks of {} output channels would begin in one expert and end in the next: each has {}",
        one.scheme.scale_rows, one.n));
  }
  return Eligibility::Yes();
}

uint64_t PlacedBytes(const Placement& placement) {
  uint64_t bytes = 0;
  for (const Runs& runs : placement) bytes += runs.bytes * runs.count;
  return bytes;
}

PackRequest OfOneExpert(const PackRequest& request) {
  PackRequest one = request;
  one.n = request.n_of_expert();
  one.experts = std::min<uint64_t>(request.experts, 1);
  return one;
}

void SetModuleKind(const Layout& layout, PackRequest& request) {
  request.inputs_first = layout.inputs_first;
  request.experts = layout.for_experts ? 1 : 0;
}

Placement PlaceChannels(const PackRequest& request, const PanelRange& tile) {
  const size_t row_bytes = PanelRowBytes(request.scheme.code, request.k);
  return {{.offset = tile.n0 * row_bytes, .bytes = tile.rows * row_bytes}};
}

const PartSpec* FindPart(const std::vector<PartSpec>& parts, PartRole role) {
  const auto it = std::ranges::find(parts, role, &PartSpec::role);
  return it == parts.end() ? nullptr : &*it;
}

uint64_t StripRows(const Layout& layout, const PackRequest& request) {
  constexpr uint64_t kBufferBytes = 1 << 20;
  const uint64_t multiple = layout.cut(request).strip_rows;
  const uint64_t rows = kBufferBytes / sizeof(float) / request.groups();
  return std::max(multiple, rows / multiple * multiple);
}

std::string ScaleRounding(const Layout& layout, const PackRequest& request) {
  if (!layout.HasScales()) return "none";
  if (layout.scales.two_levels) return "the reciprocal of a global scale in F32, nearest even";
  if (layout.checkpoint) return "none";
  const DType stored = request.stored_scale_dtype;
  const DType value = layout.scales.value.Of(request);
  if (stored == value || value == DType::kF32 || value == DType::kF8E8M0) return "none";
  return fmt::format("{} to {}, nearest even", DTypeName(stored), DTypeName(value));
}

Status ReadTileParameters(const Layout& layout, const QuantizedLinear& weights,
                          const PanelRange& tile, TileParameters& parameters) {
  const uint64_t count = tile.rows * weights.groups();
  parameters.zero_points.resize(layout.codes_need_zero_points ? count : 0);
  parameters.scales.resize(layout.HoldsParameters() ? count : 0);
  if (layout.codes_need_zero_points) {
    PREPACK_TRY(weights.ReadZeroPoints(tile.n0, tile.rows, parameters.zero_points));
  }
  if (!layout.HoldsParameters()) return {};
  return weights.ReadScales(tile.n0, tile.rows, parameters.scales);
}

}  // namespace prepack
