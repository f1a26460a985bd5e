#include "prepack/formats/gptq/module.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/rows/row_checks.h"
#include "prepack/formats/stored_linear.h"

namespace prepack::gptq {

namespace {

Status CheckMatrix(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  const bool sound = tensor.shape.size() == 2 && tensor.shape[0] > 0 && tensor.shape[1] > 0;
  if (sound) return {};
  return Malformed(checkpoint.Where(tensor), "the tensor is not a matrix, or is empty")
      .Found(ShowShape(tensor.shape))
      .Expected("two dimensions: experts and convolutions are stored flattened")
      .Id(FindingId("tensor-shape"));
}

Status FindTensors(const Checkpoint& checkpoint, const ModuleTensors& module, Shape& shape) {
  shape.qweight = module.Find("qweight");
  shape.qzeros = module.Find("qzeros");
  shape.scales = module.Find("scales");
  shape.g_idx = module.Find("g_idx");
  for (const auto& [suffix, tensor] :
       {std::pair{"qweight", shape.qweight}, {"qzeros", shape.qzeros}, {"scales", shape.scales}}) {
    if (tensor == nullptr) {
      return Malformed(module.name,
                       fmt::format("the tensor {} of a quantized module is missing", suffix))
          .Hint("A shard is missing, or the index is wrong")
          .Id(FindingId("tensor-missing"));
    }
  }
  for (const StoredTensor* packed : {shape.qweight, shape.qzeros}) {
    const DType dtype = packed->dtype;
    if (dtype == DType::kI8 || dtype == DType::kI16 || dtype == DType::kI64) {
      return Unsupported(checkpoint.Where(*packed),
                         "codes packed into other words are not supported")
          .Found(DTypeName(dtype))
          .Expected("I32")
          .Hint("BitBLAS and pack_dtype store such; use the checkpoint in the plain GPTQ format")
          .Id(FindingId("pack-dtype"));
    }
    PREPACK_TRY(RequireDType(checkpoint, *packed, "packed codes", {DType::kI32}));
  }
  Status status = RequireDType(checkpoint, *shape.scales, "the scales",
                               {DType::kF16, DType::kBF16, DType::kF32});
  for (const StoredTensor* tensor : {shape.qweight, shape.qzeros, shape.scales}) {
    if (status.ok()) status = CheckMatrix(checkpoint, *tensor);
  }
  return status;
}

// Could the tensors have been packed with so many bits? qzeros has N · bits / 32 columns, and the K
// that qweight then holds makes as many groups as there are rows of scales.
bool FitsWidth(const Settings& settings, const Shape& shape, uint32_t bits) {
  const CodePacking packing{bits, false};
  const CodeUnit unit = UnitOf(packing);
  const uint64_t rows = shape.qweight->shape[0];
  if (shape.qzeros->shape[1] != ZeroWordsFor(packing, shape.scales->shape[1]) ||
      rows % unit.stored_words != 0 || settings.group_size == 0) {
    return false;
  }
  const std::optional<uint64_t> k = CheckedMul(rows / unit.stored_words, unit.codes);
  if (!k) return false;
  const uint64_t groups =
      settings.group_size < 0 ? 1 : CeilDiv(*k, static_cast<uint64_t>(settings.group_size));
  return shape.scales->shape[0] == groups;
}

// The width that the tensors were packed with: that of the config wherever it fits, because a few
// channels fit several.
std::optional<uint32_t> BitsOfTensors(const Settings& settings, const Shape& shape) {
  for (const uint32_t bits : {settings.bits, 4U, 8U, 2U, 3U}) {
    const bool usual = bits == 2 || bits == 3 || bits == 4 || bits == 8;
    if (usual && FitsWidth(settings, shape, bits)) return bits;
  }
  return std::nullopt;
}

Result<CodePacking> ChoosePacking(const ModuleTensors& module, const Settings& settings,
                                  const Shape& shape) {
  CodePacking packing{settings.bits, settings.planar};
  if (settings.bits_from_tensors)
    packing.bits = BitsOfTensors(settings, shape).value_or(settings.bits);
  const bool usual =
      packing.bits == 2 || packing.bits == 3 || packing.bits == 4 || packing.bits == 8;
  if (usual || (packing.planar && packing.bits >= 2 && packing.bits <= 8)) return packing;
  return Unsupported(module.name, "codes of this width are not supported")
      .Found(fmt::format("{} bits ({})", packing.bits, settings.where))
      .Expected("2, 3, 4 or 8 bits; 5 to 7 only in the format gptq_p");
}

// AWQ packs along N: qweight [K, N · bits / 32], qzeros [G, N · bits / 32].
Status CheckNotAwq(const Checkpoint& checkpoint, const Shape& shape) {
  const uint64_t n = shape.scales->shape[1];
  const uint64_t columns = shape.qweight->shape[1];
  if (columns == n || columns != shape.qzeros->shape[1] ||
      columns != CeilDiv(n * shape.packing.bits, kWordBits)) {
    return {};
  }
  return Malformed(checkpoint.Where(*shape.qweight),
                   "this is AWQ packing, but the config says GPTQ packing")
      .Found(fmt::format("qweight {} beside scales {}", ShowShape(shape.qweight->shape),
                         ShowShape(shape.scales->shape)))
      .Expected(fmt::format("[K · {} / 32, {}]", shape.packing.bits, n))
      .Hint("Set the quantization method that packed these tensors in the config")
      .Id(FindingId("gptq-is-awq"));
}

// K as qweight holds it, checked against g_idx.
Status FindK(const Checkpoint& checkpoint, Shape& shape) {
  const uint64_t rows = shape.qweight->shape[0];
  const CodeUnit unit = UnitOf(shape.packing);
  const std::optional<uint64_t> k = CheckedMul(rows / unit.stored_words, unit.codes);
  if (!k || rows % unit.stored_words != 0) {
    return Malformed(
               checkpoint.Where(*shape.qweight),
               fmt::format("the rows are not whole units of {}-bit codes", shape.packing.bits))
        .Found(fmt::format("{} rows", rows))
        .Expected(fmt::format("a multiple of {}", unit.stored_words))
        .Hint("Does the config say another width than the tensors were packed with?")
        .Id(FindingId("tensor-shape"));
  }
  shape.k = *k;
  if (shape.g_idx == nullptr) return {};
  Status status =
      RequireDType(checkpoint, *shape.g_idx, "group indices", {DType::kI32, DType::kI64});
  if (!status.ok()) return status;
  if (shape.g_idx->shape == std::vector{shape.k}) return {};
  return Malformed(checkpoint.Where(*shape.g_idx), "g_idx and qweight disagree about K")
      .Found(fmt::format("g_idx {}", ShowShape(shape.g_idx->shape)))
      .Expected(fmt::format("[{}], as qweight {} holds at {} bits", shape.k,
                            ShowShape(shape.qweight->shape), shape.packing.bits))
      .Hint("The tensors are padded, or of another width than the config says")
      .Id(FindingId("tensor-shape"));
}

// The group size that `groups` rows of scales would fit, for a hint.
std::string FittingGroupSize(uint64_t k, uint64_t groups) {
  if (groups == 1) return "Group size -1 would fit";
  if (k % groups == 0) return fmt::format("Group size {} would fit", k / groups);
  return "No group size that divides K would fit";
}

// Some exporters pad channels to a multiple of 32, in qzeros only. What fits a wider code exactly
// is no padding but another width.
bool IsPadded(const Shape& shape, uint64_t needed) {
  constexpr uint64_t kPadding = 32;
  const uint64_t padded = ZeroWordsFor(shape.packing, CeilDiv(shape.n, kPadding) * kPadding);
  if (shape.zero_words <= needed || shape.zero_words > padded) return false;
  for (const uint32_t wider : {3U, 4U, 8U}) {
    const bool fits = ZeroWordsFor({wider, false}, shape.n) == shape.zero_words;
    if (!shape.packing.planar && wider > shape.packing.bits && fits) return false;
  }
  return true;
}

Status CheckGroups(const Checkpoint& checkpoint, const Settings& settings, Shape& shape) {
  if (settings.group_size != -1 && settings.group_size <= 0) {
    return Malformed(settings.where, "the group size is not positive")
        .Found(std::to_string(settings.group_size))
        .Expected("a positive number, or -1 for one group")
        .Id(FindingId("config-field-invalid"));
  }
  const auto declared = static_cast<uint64_t>(settings.group_size);
  shape.group_size = settings.group_size == -1 ? shape.k : std::min(declared, shape.k);
  shape.groups = CeilDiv(shape.k, shape.group_size);
  const std::vector expected = {shape.groups, shape.n};
  if (shape.scales->shape != expected) {
    return Malformed(checkpoint.Where(*shape.scales), "the scales contradict the group size")
        .Found(ShowShape(shape.scales->shape))
        .Expected(fmt::format("{}: K = {}, group size {} ({})", ShowShape(expected), shape.k,
                              settings.group_size, settings.where))
        .Hint(FittingGroupSize(shape.k, shape.scales->shape[0]))
        .Id(FindingId("tensor-shape"));
  }
  shape.zero_words = shape.qzeros->shape[1];
  const uint64_t needed = ZeroWordsFor(shape.packing, shape.n);
  if (shape.qzeros->shape[0] == shape.groups &&
      (shape.zero_words == needed || IsPadded(shape, needed))) {
    return {};
  }
  return Malformed(checkpoint.Where(*shape.qzeros), "the zero points contradict scales and width")
      .Found(ShowShape(shape.qzeros->shape))
      .Expected(fmt::format("[{}, {}]: {} zero points of {} bits", shape.groups, needed, shape.n,
                            shape.packing.bits))
      .Id(FindingId("tensor-shape"));
}

}  // namespace

uint64_t ZeroWordsFor(const CodePacking& packing, uint64_t n) {
  if (!packing.planar) return CeilDiv(n * packing.bits, kWordBits);
  const CodeUnit unit = UnitOf(packing);
  return CeilDiv(n, unit.codes) * unit.stored_words;
}

Result<Shape> CheckShape(const Checkpoint& checkpoint, const ModuleTensors& module,
                         const Settings& settings) {
  Shape shape;
  Status status = FindTensors(checkpoint, module, shape);
  if (!status.ok()) return status;
  PREPACK_TRY_ASSIGN(const CodePacking packing, ChoosePacking(module, settings, shape));
  shape.packing = packing;
  status = CheckNotAwq(checkpoint, shape);
  if (!status.ok()) return status;
  shape.n = shape.qweight->shape[1];
  if (shape.scales->shape[1] != shape.n) {
    return Malformed(checkpoint.Where(*shape.scales), "scales and qweight disagree about N")
        .Found(ShowShape(shape.scales->shape))
        .Expected(fmt::format("[G, {}], as qweight {} has columns", shape.n,
                              ShowShape(shape.qweight->shape)))
        .Id(FindingId("tensor-shape"));
  }
  status = FindK(checkpoint, shape);
  if (status.ok()) status = CheckGroups(checkpoint, settings, shape);
  if (!status.ok()) return status;
  return shape;
}

void ReportOrder(const GroupOrder& order, const ModuleTensors& module, const Shape& shape,
                 bool act_order, FindingTally& findings) {
  switch (order.kind) {
    case GroupOrder::Kind::kAbsent:
      if (!act_order || shape.groups == 1) return;
      findings.Add("order-missing", module.name,
                   "desc_act is true, but g_idx is missing: natural order");
      return;
    case GroupOrder::Kind::kUnset:
      findings.Add(
          act_order ? FindingId("order-missing") : FindingId("gptq-order-unset"), module.name,
          fmt::format("g_idx was never filled in: natural order; desc_act is {}", act_order));
      return;
    case GroupOrder::Kind::kNatural:
      if (!act_order || shape.groups == 1) return;
      findings.Add("order-unneeded", module.name,
                   "desc_act is true, but g_idx keeps the natural order (static groups)");
      return;
    case GroupOrder::Kind::kScattered:
      findings.Add("order-present", module.name,
                   "the groups lie over reordered input channels (desc_act)");
      if (act_order) return;
      findings.Add("order-undeclared", module.name,
                   "desc_act is false, but g_idx scatters the groups; the tensor wins");
      return;
  }
}

}  // namespace prepack::gptq
