// Checkpoints of `quant_method: mxfp4` (gpt-oss; mirrors transformers 5.23, integrations/mxfp4.py):
// only experts are quantized, all of a layer in one tensor.
//
//     EXPERTS.X_blocks  U8 [E, N, K/32, 16]  32 codes of FP4 in a block, the even input channel
//                                            in the low half of its byte
//     EXPERTS.X_scales  U8 [E, N, K/32]      u means 2^(u − 127), 255 is NaN
//     EXPERTS.X_bias    BF16 [E, N]          passes through
//
// X is gate_up_proj, whose rows are gate and up by turns, or down_proj. Expert e is the module
// EXPERTS.X.e, rows as they are stored. Codes 0 to 7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6, and bit 3 is
// the sign; [0, 0.5, …, 6, −0, −0.5, …] begins with the bytes 10 32 54 76 98.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/config_keys.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/fp4/module.h"
#include "prepack/formats/module_match.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/readers.h"
#include "prepack/formats/rows/row_linear.h"
#include "prepack/formats/stored_linear.h"

namespace prepack::fp4 {

namespace {

// transformers (Mxfp4Config) and the publisher of gpt-oss.
constexpr std::string_view kMxfp4Keys = "dequantize modules_to_not_convert";

}  // namespace

constinit const FormatKeys kKeys = {.known = {kMxfp4Keys}};

ActivationScheme FourBitActivations(uint64_t group_size) {
  return {.type = ActivationType::kFloat,
          .bits = 4,
          .symmetric = true,
          .dynamic = true,
          .granularity = ActivationGranularity::kGroup,
          .group_size = group_size};
}

Scheme SchemeOf(const Meaning& meaning) {
  return {.code = CodeType::kF4E2M1,
          .bits = 4,
          .granularity = Granularity::kGroup,
          .group_size = meaning.group_size(),
          .scale_rows = 1,
          .symmetric = true,
          .activations = meaning.activations};
}

namespace {

Status MissingTensor(const Checkpoint& checkpoint, const StoredTensor& weight,
                     const std::string& expected) {
  return Malformed(checkpoint.Where(weight), "a scale of the FP4 weight is missing")
      .Expected(expected)
      .Hint("A shard is missing, or the index is wrong")
      .Id(FindingId("tensor-missing"));
}

Status CheckWeight(const Checkpoint& checkpoint, std::string_view module,
                   const StoredTensor& weight, DType stored) {
  if (weight.dtype != stored) {
    return Malformed(checkpoint.Where(weight),
                     "the config says FP4, but the weight is not stored so")
        .Found(DTypeName(weight.dtype))
        .Expected(fmt::format("{}, two codes per byte", DTypeName(stored)))
        .Id(FindingId("module-scheme-contradiction"));
  }
  return CheckWeightMatrix(checkpoint, module, weight, "FP4", "[N, K/2]");
}

Status CheckGroups(const Checkpoint& checkpoint, const StoredTensor& weight, uint64_t k,
                   uint64_t group_size) {
  if (k % group_size == 0) return {};
  return Malformed(checkpoint.Where(weight), "K is not a multiple of the group size")
      .Found(fmt::format("K = {}, group size {}", k, group_size))
      .Id(FindingId("group-size-mismatch"));
}

}  // namespace

Result<std::unique_ptr<QuantizedLinear>> DescribeModule(const Checkpoint& checkpoint,
                                                        const ModuleTensors& module,
                                                        const Meaning& meaning) {
  const StoredTensor& weight = *module.Find("weight");
  PREPACK_TRY(CheckWeight(checkpoint, module.name, weight, meaning.stored));
  RowModule parts;
  parts.module = module.name;
  parts.n = weight.shape[0];
  parts.k = 2 * weight.shape[1];  // the bytes of an open tensor are far from 2^63
  parts.stored = RowCodes::kNibbles;
  parts.codes = &weight;
  parts.scale = module.Find(meaning.scale);
  parts.scale_form = meaning.form();
  parts.scheme = SchemeOf(meaning);
  PREPACK_TRY(RefuseInputsFirst(checkpoint, module.name, weight, parts.n, parts.k));
  PREPACK_TRY(CheckGroups(checkpoint, weight, parts.k, meaning.group_size()));
  if (parts.scale == nullptr) {
    return MissingTensor(checkpoint, weight, fmt::format("{}.{}", module.name, meaning.scale));
  }
  PREPACK_TRY(CheckScaleTensor(checkpoint, *parts.scale,
                               {.n = parts.n, .k = parts.k, .experts = std::nullopt}, parts.scheme,
                               meaning.form()));
  const StoredTensor* global = module.Find("weight_scale_2");
  if (meaning.nvfp4 && global == nullptr) {
    return MissingTensor(checkpoint, weight, fmt::format("{}.weight_scale_2", module.name));
  }
  if (!meaning.nvfp4 && global != nullptr) {
    return Malformed(checkpoint.Where(*global), "MXFP4 weights have no global scale")
        .Id(FindingId("module-scheme-contradiction"));
  }
  if (global != nullptr) {
    PREPACK_TRY_ASSIGN(parts.global_scale, ReadGlobalScale(checkpoint, *global, false));
    parts.global_scale_tensor = global;
    parts.input_global_scale = FindInputGlobalScale(checkpoint, module.Find("input_scale"), false);
  }
  for (const std::string_view name : {"input_scale", "input_scale_2"}) {
    if (const StoredTensor* input = module.Find(name)) parts.side_tensors.push_back(input);
  }
  return std::unique_ptr<QuantizedLinear>(std::make_unique<RowLinear>(checkpoint, parts));
}

namespace {

constexpr std::string_view kBlocks = "_blocks";
constexpr std::string_view kScales = "_scales";
constexpr uint64_t kBlockBytes = kMxGroup / 2;
// Each expert becomes a module of its own; real models have some hundreds.
constexpr uint64_t kMaxExperts = 8192;

// Of experts in one tensor, none of whose dimensions is zero.
Status CheckExperts(const Checkpoint& checkpoint, const StoredTensor& stack) {
  if (stack.shape[0] <= kMaxExperts) return {};
  return Unsupported(checkpoint.Where(stack), "too many stacked experts")
      .Found(ShowShape(stack.shape))
      .Expected(fmt::format("at most {}", kMaxExperts))
      .Id(FindingId("storage-unsupported"));
}

// [E, N, K/32, 16], none of them zero.
Status CheckBlocks(const Checkpoint& checkpoint, const StoredTensor& blocks) {
  PREPACK_TRY(RequireDType(checkpoint, blocks, "blocks of MXFP4", {DType::kU8}));
  const TensorShape& dims = blocks.shape;
  if (dims.size() != 4 || dims[3] != kBlockBytes ||
      std::ranges::find(dims, uint64_t{0}) != dims.end()) {
    return Malformed(checkpoint.Where(blocks), "the blocks of MXFP4 have the wrong shape")
        .Found(ShowShape(dims))
        .Expected("[experts, N, K/32, 16]")
        .Id(FindingId("tensor-shape"));
  }
  return CheckExperts(checkpoint, blocks);
}

// EXPERTS.STEM_bias, if there is one. Codes and scales may both be transposed; the bias tells.
Status FindStackedBias(const Checkpoint& checkpoint, const ModuleTensors& experts,
                       std::string_view stem, RowModule& parts) {
  parts.stacked_bias = experts.Find(fmt::format("{}_bias", stem));
  if (parts.stacked_bias == nullptr) return {};
  const std::vector<uint64_t> expected = {parts.experts, parts.n};
  return RequireShape(checkpoint, *parts.stacked_bias, expected,
                      "one per expert and output channel");
}

// [E, K/2, N], none of them zero.
Status CheckNvfp4Stack(const Checkpoint& checkpoint, const StoredTensor& weight,
                       const StoredTensor& scale) {
  const TensorShape& dims = weight.shape;
  if (std::ranges::find(dims, uint64_t{0}) != dims.end()) {
    return Malformed(checkpoint.Where(weight), "the weight is empty")
        .Found(ShowShape(dims))
        .Id(FindingId("tensor-shape"));
  }
  PREPACK_TRY(CheckExperts(checkpoint, weight));
  PREPACK_TRY(RequireDType(checkpoint, scale, "scales of NVFP4", {DType::kF8E4M3}));
  // A byte is two codes, and a scale belongs to 16.
  const std::vector<uint64_t> expected = {dims[0], dims[1] / (kNvfp4Group / 2), dims[2]};
  PREPACK_TRY(RequireShape(checkpoint, scale, expected, "[experts, K/16, N]"));
  return CheckGroups(checkpoint, weight, 2 * dims[1], kNvfp4Group);
}

}  // namespace

bool IsNvfp4Stack(const ModuleTensors& module, std::string_view suffix,
                  const StoredTensor& tensor) {
  return suffix != "weight" && tensor.dtype == DType::kU8 && tensor.shape.size() == 3 &&
         module.Find(fmt::format("{}_weight_scale_2", suffix)) != nullptr;
}

Status DescribeNvfp4Stack(const Checkpoint& checkpoint, const ModuleTensors& experts,
                          std::string_view suffix, const Meaning& meaning, QuantizedModel& model) {
  PREPACK_TRY(CheckModuleName(experts.name));
  const StoredTensor& weight = *experts.Find(suffix);
  const StoredTensor* scale = experts.Find(fmt::format("{}_weight_scale", suffix));
  if (scale == nullptr) {
    return MissingTensor(checkpoint, weight,
                         fmt::format("{}.{}_weight_scale", experts.name, suffix));
  }
  PREPACK_TRY(CheckNvfp4Stack(checkpoint, weight, *scale));
  RowModule parts;
  parts.experts = weight.shape[0];
  parts.k = 2 * weight.shape[1];
  parts.n = weight.shape[2];
  parts.stored = RowCodes::kNibbles;
  parts.codes = &weight;
  parts.scale = scale;
  parts.scale_form = meaning.form();
  parts.scheme = SchemeOf(meaning);
  PREPACK_TRY(FindStackedBias(checkpoint, experts, suffix, parts));
  const StoredTensor& global = *experts.Find(fmt::format("{}_weight_scale_2", suffix));
  PREPACK_TRY_ASSIGN(parts.global_scale, ReadGlobalScale(checkpoint, global, false));
  parts.global_scale_tensor = &global;
  if (const StoredTensor* input = experts.Find(fmt::format("{}_input_scale", suffix))) {
    parts.input_global_scale = FindInputGlobalScale(checkpoint, input, false);
    parts.side_tensors.push_back(input);
  }
  for (uint64_t expert = 0; expert < parts.experts; ++expert) {
    parts.expert = expert;
    parts.module = fmt::format("{}.{}.{}", experts.name, suffix, expert);
    model.modules.push_back(MakeColumnLinear(checkpoint, parts));
  }
  return {};
}

namespace {

// Adds the experts of EXPERTS.STEM_blocks.
Status DescribeExperts(const Checkpoint& checkpoint, const ModuleTensors& experts,
                       std::string_view stem, QuantizedModel& model) {
  PREPACK_TRY(CheckModuleName(experts.name));
  const StoredTensor& blocks = *experts.Find(fmt::format("{}{}", stem, kBlocks));
  PREPACK_TRY(CheckBlocks(checkpoint, blocks));
  const StoredTensor* scales = experts.Find(fmt::format("{}{}", stem, kScales));
  if (scales == nullptr) {
    return MissingTensor(checkpoint, blocks, fmt::format("{}.{}{}", experts.name, stem, kScales));
  }
  const Meaning meaning;
  RowModule parts;
  parts.experts = blocks.shape[0];
  parts.n = blocks.shape[1];
  parts.k = blocks.shape[2] * kMxGroup;
  parts.stored = RowCodes::kNibbles;
  parts.codes = &blocks;
  parts.scale = scales;
  parts.scale_form = meaning.form();
  parts.scheme = SchemeOf(meaning);
  PREPACK_TRY(CheckScaleTensor(checkpoint, *scales,
                               {.n = parts.n, .k = parts.k, .experts = parts.experts}, parts.scheme,
                               meaning.form()));
  PREPACK_TRY(FindStackedBias(checkpoint, experts, stem, parts));
  for (uint64_t expert = 0; expert < parts.experts; ++expert) {
    parts.expert = expert;
    parts.module = fmt::format("{}.{}.{}", experts.name, stem, expert);
    model.modules.push_back(std::make_unique<RowLinear>(checkpoint, parts));
  }
  return {};
}

// Scales without their blocks.
Status CheckOrphan(const Checkpoint& checkpoint, const ModuleTensors& module,
                   std::string_view suffix, const StoredTensor& tensor) {
  const std::string_view stem = suffix.substr(0, suffix.size() - kScales.size());
  if (tensor.dtype != DType::kU8 || module.Find(fmt::format("{}{}", stem, kBlocks)) != nullptr) {
    return {};
  }
  return Malformed(checkpoint.Where(tensor), "the weight that this tensor describes is missing")
      .Expected(fmt::format("{}.{}{}", module.name, stem, kBlocks))
      .Hint("A shard is missing, or the index is wrong")
      .Id(FindingId("tensor-orphan"));
}

}  // namespace

Status Read(const ReadContext& context, QuantizedModel& model) {
  // The tensors say what is converted, whatever the lists of the copies name.
  for (const QuantizationConfig& config : context.configs) {
    PREPACK_TRY(OptionalStrings(*config.fields, {"modules_to_not_convert"}, config.where).status());
  }
  for (const ModuleTensors& module : context.modules) {
    for (const auto& [suffix, tensor] : module.tensors) {
      if (suffix.ends_with(kBlocks)) {
        const std::string_view stem = suffix.substr(0, suffix.size() - kBlocks.size());
        model.AddError(DescribeExperts(context.checkpoint, module, stem, model));
      } else if (suffix.ends_with(kScales)) {
        model.AddError(CheckOrphan(context.checkpoint, module, suffix, *tensor));
      }
    }
  }
  return RequireModules(model, context.configs.front().where,
                        "tensors named EXPERTS.NAME_blocks and EXPERTS.NAME_scales", "MXFP4");
}

}  // namespace prepack::fp4
