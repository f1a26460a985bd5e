#include "formats/gptq_module.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/isa.h"
#include "formats/finding.h"
#include "formats/gptq_linear.h"
#include "formats/gptq_order.h"
#include "formats/gptq_shape.h"
#include "formats/gptq_zeros.h"
#include "formats/module_match.h"

namespace prepack {

namespace {

// What lies beside qweight and does not belong to it.
Status CheckOtherTensors(const Checkpoint& checkpoint, const ModuleTensors& module,
                         FindingTally& findings) {
  static constexpr std::array<std::string_view, 5> kKnown = {"qweight", "qzeros", "scales", "g_idx",
                                                             "bias"};
  for (const auto& [suffix, tensor] : module.tensors) {
    if (suffix == "weight") {
      return Malformed(module.name, "the module is stored twice: quantized and not")
          .Found(fmt::format("{} and {}", checkpoint.Where(*module.Find("qweight")),
                             checkpoint.Where(*tensor)))
          .Hint(
              "Remove the one that is not of this checkpoint; a stale shard may lie in the folder")
          .Id(FindingId("weight-twice"));
    }
    if (suffix == "lora_A" || suffix == "lora_B") {
      return Unsupported(checkpoint.Where(*tensor), "low-rank adapters are not read")
          .Hint(
              "Without the adapter the module computes something else; remove it, or merge it "
              "before quantizing")
          .Id(FindingId("adapter-unsupported"));
    }
    if (std::ranges::find(kKnown, suffix) == kKnown.end()) {
      findings.Add("tensor-unknown", tensor->name,
                   "unknown tensor of a quantized module; passed through");
    }
  }
  return {};
}

// The constant that a symmetric module stores, from its first zero point.
Result<uint32_t> FindSymmetricField(const Checkpoint& checkpoint, const ModuleTensors& module,
                                    const GptqShape& shape, const GptqSettings& settings,
                                    FindingTally& findings) {
  std::array<uint32_t, 8> buffer{};
  const uint32_t bits = shape.packing.bits;
  const auto words = std::span(buffer).first(
      std::min<uint64_t>(UnitOf(shape.packing).stored_words, shape.zero_words));
  Status status = checkpoint.Read(*shape.qzeros, 0, std::as_writable_bytes(words));
  if (!status.ok()) return status;
  const uint32_t field = PackedCode(shape.packing, words, 0);
  if (field == SymmetricField(bits, settings.zeros)) return field;
  const bool minus_one = settings.zeros == GptqZeros::kMinusOne;
  const GptqZeros other = minus_one ? GptqZeros::kStored : GptqZeros::kMinusOne;
  if (field == SymmetricField(bits, other)) {
    findings.Add("gptq-zeros-other-version", module.name,
                 fmt::format("declared {}, but {} is stored, as {} does; the value is not needed, "
                             "because the module is symmetric",
                             minus_one ? "z - 1 (v1)" : "z (v2)", field,
                             minus_one ? "z (v2)" : "z - 1 (v1)"));
    return field;
  }
  return Malformed(checkpoint.Where(*shape.qzeros),
                   "the module claims to be symmetric, but its zero points are not in the middle")
      .Found(fmt::format("{} at channel 0, group 0", field))
      .Expected(fmt::format("{} or {}", SymmetricField(bits, GptqZeros::kMinusOne),
                            SymmetricField(bits, GptqZeros::kStored)))
      .Hint("Set sym to false if it is not symmetric, or export it again")
      .Id(FindingId("zero-point-not-symmetric"));
}

}  // namespace

Result<std::unique_ptr<QuantizedLinear>> DescribeGptqModule(const Checkpoint& checkpoint,
                                                            const ModuleTensors& module,
                                                            const GptqSettings& settings,
                                                            FindingTally& findings) {
  const Result<Isa> isa = ChooseIsa();
  if (!isa.ok()) return isa.status();
  if (ClassOfModule(module.name) == ModuleClass::kEmbedding) {
    return Unsupported(module.name, "quantized embeddings are not read")
        .Hint("Leave the embedding out when quantizing")
        .Id(FindingId("embedding-quantized"));
  }
  Status status = CheckOtherTensors(checkpoint, module, findings);
  if (!status.ok()) return status;
  const Result<GptqShape> shape = CheckGptqShape(checkpoint, module, settings);
  if (!shape.ok()) return shape.status();
  if (shape->packing.bits != settings.bits) {
    findings.Add("module-scheme-mismatch", module.name,
                 fmt::format("the config says {} bits, but the tensors hold {}; the tensors win",
                             settings.bits, shape->packing.bits));
  }
  const uint64_t needed = ZeroWordsFor(shape->packing, shape->n);
  if (shape->zero_words > needed) {
    findings.Add("zero-point-padded", module.name,
                 fmt::format("qzeros has {} words per group for N = {}; {} are ignored",
                             shape->zero_words, shape->n, shape->zero_words - needed));
  }
  const Result<GptqOrder> order = ReadGptqOrder(checkpoint, *shape);
  if (!order.ok()) return order.status();
  ReportGptqOrder(*order, module, *shape, settings.act_order, findings);

  uint32_t symmetric_field = 0;
  if (settings.symmetric) {
    const Result<uint32_t> field =
        FindSymmetricField(checkpoint, module, *shape, settings, findings);
    if (!field.ok()) return field.status();
    symmetric_field = *field;
  }
  return std::unique_ptr<QuantizedLinear>(std::make_unique<GptqLinear>(
      checkpoint, module.name, *shape, settings, order->kind == GptqOrder::Kind::kScattered,
      symmetric_field, *isa));
}

}  // namespace prepack
