// Checkpoints of `quant_method: fp8` (mirrors vLLM 0.32.0,
// model_executor/layers/quantization/fp8.py; transformers 5.23, integrations/finegrained_fp8.py;
// GPTQModel 7.7, nn_modules/qlinear/fp8.py).
//
//     MODULE.weight            F8_E4M3 [N, K]
//     MODULE.weight_scale_inv  F32 or BF16; also called weight_scale, and scale (DeepSeek V4)
//       [⌈N/128⌉, ⌈K/128⌉]       with weight_block_size [128, 128]; edges may be partial
//       [] or [1]                one scale per module
//       [N] or [N, 1]            one per output channel
//     MODULE.input_scale       one element, activation_scheme "static" only; transformers calls it
//                              activation_scale (Ministral 3, Devstral 2)
//
// The trap is the name weight_scale_inv. As DeepSeek, Qwen, Mistral and transformers write it, it
// multiplies: W = e4m3(weight) · scale. As GPTQModel writes it, it divides: W = e4m3(weight) /
// scale, and nothing tells the two apart but `weight_scale_semantics: "inverse"` in the config.
// There, the scale of the canonical layout is the reciprocal, rounded once to f32, as GPTQModel's
// own kernel takes it. `dynamic` then holds rules for some modules, as in GPTQModel's other
// formats.
//
// Scales may be bytes u that mean 2^(u − 127), 255 is NaN: of dtype F8_E8M0, or U8 where scale_fmt
// is "ue8m0".
//
// Experts may be stacked, or have their scales stacked (fp8/module.h).
//
// DeepSeek V4 (`expert_dtype: fp4` in config.json; mirrors vLLM 0.33, models/deepseek_v41, and
// transformers 5.23, Fp8Dequantize) stores its routed experts in FP4, whatever weight_block_size
// is:
//
//     MODULE.weight  I8 [N, K/2]       two codes in a byte, the even input channel in the low half
//     MODULE.scale   F8_E8M0 [N, K/32]
//
// `quant_method: mxfp8` (MiniMax M3; vLLM 0.33 reads it as ModelOpt's MXFP8) stores
//
//     MODULE.weight            F8_E4M3 [N, K]
//     MODULE.weight_scale_inv  U8 or F8_E8M0 [N, K/32], exponents; also called weight_scale
//
// `quant_method: fbgemm_fp8` (mirrors transformers 5.23, integrations/fbgemm_fp8.py) stores the
// same weight with weight_scale F32 [N, 1], which multiplies. Activations are quantized per token.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/container/json_fields.h"
#include "prepack/container/model_config.h"
#include "prepack/formats/config_keys.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/fp4/module.h"
#include "prepack/formats/fp8/config.h"
#include "prepack/formats/fp8/module.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/readers.h"
#include "prepack/model/module_name.h"

namespace prepack::fp8 {

namespace {

// transformers (FineGrainedFP8Config), AutoFP8, Quark, the publishers of DeepSeek, MiniMax and
// Qwen; the last two are GPTQModel's.
constexpr std::string_view kFp8Keys =
    "activation_scheme dequantize expert_dtype export fmt ignored_layers kv_cache_scheme "
    "modules_to_convert modules_to_not_convert packed_modules_mapping scale_fmt weight_block_size "
    "weight_per_tensor act_per_tensor extra_config weight_scale_method weight_scale_semantics";

// transformers (FbgemmFp8Config) and the publishers of Llama 3.1.
constexpr std::string_view kFbgemmKeys = "activation_scale_ub modules_to_not_convert";

constexpr auto kFp8Meant = std::to_array<MeantKey>({
    {"rotation", "rotated weights need the same rotation of the activations at run time",
     "rotation"},
    {"rotation_config", "rotated weights need the same rotation of the activations at run time",
     "rotation"},
    {"spinquant_config", "rotated weights need the same rotation of the activations at run time",
     "rotation"},
    {"adapter", "low-rank adapters are not supported", "adapter-unsupported"},
    {"store_dtype", "weights stored in another type than FP8 are not supported",
     "config-key-unsupported"},
});

}  // namespace

constinit const FormatKeys kKeys = {.known = {kFp8Keys, kGptqModelKeys, kAutoRoundKeys},
                                    .meant = kFp8Meant};
constinit const FormatKeys kFbgemmFormatKeys = {.known = {kFbgemmKeys}};
constinit const FormatKeys kMxfp8FormatKeys = {.known = {kFp8Keys}, .meant = kFp8Meant};

namespace {

// The names that writers give the scale; no module has two of them.
constexpr std::array<std::string_view, 3> kScaleNames = {"weight_scale_inv", "weight_scale",
                                                         "scale"};

// `expert_dtype`, which DeepSeek V4 has in config.json and V4.1 in the quantization_config; nullopt
// where it is absent.
Result<std::optional<std::string>> FindExpertDType(const Checkpoint& checkpoint,
                                                   const QuantizationConfig& declared) {
  constexpr std::string_view kKey = "expert_dtype";
  PREPACK_TRY_ASSIGN(std::optional<std::string> dtype,
                     OptionalString(*declared.fields, kKey, declared.where));
  std::string_view where = declared.where;
  if (!dtype) {
    where = "config.json";
    PREPACK_TRY_ASSIGN(dtype, OptionalString(LanguageConfig(checkpoint.config()), kKey, where));
  }
  if (dtype && *dtype != "fp4" && *dtype != "fp8") {
    return UnknownKeyword(where, kKey, *dtype, "fp4 or fp8");
  }
  return dtype;
}

class Fp8Reader {
 public:
  Fp8Reader(const Checkpoint& checkpoint, const Config& config,
            std::span<const ModuleTensors> modules, std::optional<std::string> expert_dtype)
      : checkpoint_(checkpoint),
        config_(config),
        modules_(modules),
        expert_dtype_(std::move(expert_dtype)) {}

  // Is it FP8, or one of DeepSeek V4's experts?
  bool Takes(const ModuleTensors& module, const StoredTensor& weight) const {
    return IsFloat8(weight.dtype) || IsFp4(module, weight);
  }
  Result<std::unique_ptr<QuantizedLinear>> Describe(const ModuleTensors& module,
                                                    const StoredTensor& weight) const;
  // The experts of all stacks that lie in the module.
  void DescribeStacks(const ModuleTensors& module, QuantizedModel& model) const;

 private:
  bool IsFp4(const ModuleTensors& module, const StoredTensor& weight) const;
  Result<std::unique_ptr<QuantizedLinear>> DescribeFp4(const ModuleTensors& module,
                                                       const StoredTensor& weight) const;
  // nullptr where there is none.
  Result<const StoredTensor*> FindScale(const ModuleTensors& module) const;
  Result<const StoredTensor*> FindInput(const ModuleTensors& module) const;
  Status MissingScale(const ModuleTensors& module, const StoredTensor& weight) const;

  const Checkpoint& checkpoint_;
  const Config& config_;
  std::span<const ModuleTensors> modules_;  // ascending by name
  std::optional<std::string> expert_dtype_;
};

// Bytes are two codes of FP4 where exponents lie beside them, or where the config has experts in
// FP4, whose scale may be missing.
bool Fp8Reader::IsFp4(const ModuleTensors& module, const StoredTensor& weight) const {
  if (weight.dtype != DType::kI8 && weight.dtype != DType::kU8) return false;
  if (expert_dtype_ == "fp4" && weight.dtype == DType::kI8 && weight.shape.size() == 2) return true;
  return std::ranges::any_of(kScaleNames, [&](std::string_view name) {
    const StoredTensor* scale = module.Find(name);
    return scale != nullptr && config_.IsExponent(*scale);
  });
}

Result<const StoredTensor*> Fp8Reader::FindScale(const ModuleTensors& module) const {
  const StoredTensor* found = nullptr;
  std::string_view first;
  for (const std::string_view name : kScaleNames) {
    // What divides has one name only.
    if (config_.scale_divides && name != kScaleNames.front()) continue;
    const StoredTensor* scale = module.Find(name);
    if (scale == nullptr) continue;
    if (found != nullptr) {
      return Malformed(checkpoint_.Where(*found),
                       fmt::format("the module has both {} and {}", name, first))
          .Hint("Only one of them can be the scale; save the model again")
          .Id(FindingId("weight-twice"));
    }
    found = scale;
    first = name;
  }
  return found;
}

Status Fp8Reader::MissingScale(const ModuleTensors& module, const StoredTensor& weight) const {
  return fp8::MissingScale(
      checkpoint_, weight,
      config_.scale_divides
          ? fmt::format("{}.weight_scale_inv", module.name)
          : fmt::format("{}.weight_scale_inv, .weight_scale or .scale", module.name));
}

Result<const StoredTensor*> Fp8Reader::FindInput(const ModuleTensors& module) const {
  const StoredTensor* scale = module.Find("input_scale");
  const StoredTensor* of_transformers = module.Find("activation_scale");
  if (of_transformers == nullptr) return scale;
  if (scale == nullptr) return of_transformers;
  return Malformed(checkpoint_.Where(*of_transformers),
                   "the module has both input_scale and activation_scale")
      .Hint("Only one of them can be the scale; save the model again")
      .Id(FindingId("weight-twice"));
}

// W = e2m1 · 2^(scale − 127), in groups of 32 whatever weight_block_size says of the FP8 modules.
Result<std::unique_ptr<QuantizedLinear>> Fp8Reader::DescribeFp4(const ModuleTensors& module,
                                                                const StoredTensor& weight) const {
  if (expert_dtype_ == "fp8") {
    return Malformed(checkpoint_.Where(weight), "expert_dtype says FP8, but the weight is FP4")
        .Found(fmt::format("{} {}", DTypeName(weight.dtype), ShowShape(weight.shape)))
        .Expected("F8_E4M3 [N, K]")
        .Id(FindingId("module-scheme-contradiction"));
  }
  PREPACK_TRY_ASSIGN(const StoredTensor* scale, FindScale(module));
  if (scale == nullptr) {  // which is an error
    return fp4::DescribeModule(checkpoint_, module,
                               {.activations = {}, .stored = weight.dtype, .scale = "scale"});
  }
  PREPACK_TRY_ASSIGN(const Meaning meaning, config_.MeaningOf(module.name, *scale));
  if (meaning.form != ScaleForm::kExponent) {
    return Unsupported(checkpoint_.Where(weight),
                       "FP4 weights whose scales are not exponents are not supported here")
        .Found(fmt::format("{} {}", DTypeName(scale->dtype), ShowShape(scale->shape)))
        .Expected("F8_E8M0 [N, K/32]")
        .Id(FindingId("scheme-unsupported"));
  }
  if (!meaning.activations.dynamic) {
    return Unsupported(checkpoint_.Where(weight),
                       "static activations of FP4 weights are not supported")
        .Id(FindingId("scheme-unsupported"));
  }
  return fp4::DescribeModule(
      checkpoint_, module,
      {.activations = meaning.activations, .stored = weight.dtype, .scale = LastPart(scale->name)});
}

Result<std::unique_ptr<QuantizedLinear>> Fp8Reader::Describe(const ModuleTensors& module,
                                                             const StoredTensor& weight) const {
  if (!IsFloat8(weight.dtype)) return DescribeFp4(module, weight);
  PREPACK_TRY(CheckWeight(checkpoint_, module.name, weight));
  if (config_.NamesEmbedding(module.name)) return QuantizedEmbedding(module.name, weight);
  PREPACK_TRY_ASSIGN(const StoredTensor* scale, FindScale(module));
  const StackedScale stacked = scale == nullptr && !config_.scale_divides
                                   ? FindStackedScale(modules_, module.name)
                                   : StackedScale{.tensor = scale};
  if (stacked.tensor == nullptr) return MissingScale(module, weight);
  PREPACK_TRY_ASSIGN(const Meaning meaning, config_.MeaningOf(module.name, *stacked.tensor));
  if (scale == nullptr) {
    return DescribeSplitExpert(checkpoint_, module.name, weight, stacked, meaning);
  }
  PREPACK_TRY_ASSIGN(const StoredTensor* input, FindInput(module));
  return DescribeModule(checkpoint_, module.name, weight, *scale, input, meaning);
}

void Fp8Reader::DescribeStacks(const ModuleTensors& module, QuantizedModel& model) const {
  for (const auto& [suffix, tensor] : module.tensors) {
    const StoredTensor* scale = FindStackScale(module, suffix, *tensor);
    if (scale == nullptr || config_.scale_divides) continue;
    const Result<Meaning> meaning =
        config_.MeaningOf(fmt::format("{}.{}", module.name, suffix), *scale);
    model.AddError(meaning.ok() ? DescribeStack(checkpoint_, module, suffix, *meaning, model)
                                : meaning.status());
  }
}

}  // namespace

Status Read(const ReadContext& context, QuantizedModel& model) {
  const auto& [checkpoint, configs, modules, findings] = context;
  PREPACK_TRY_ASSIGN(const Config config, ParseConfigs(configs));
  PREPACK_TRY_ASSIGN(std::optional<std::string> expert_dtype,
                     FindExpertDType(checkpoint, configs.front()));
  const Fp8Reader reader(checkpoint, config, modules, std::move(expert_dtype));
  for (const ModuleTensors& module : modules) {
    reader.DescribeStacks(module, model);
    const StoredTensor* weight = module.Find("weight");
    if (weight == nullptr || !reader.Takes(module, *weight)) continue;
    const Result<bool> excluded = config.Excludes(module.name);
    if (!excluded.ok()) {
      model.AddError(excluded.status());
      continue;
    }
    if (*excluded) {
      findings.Add("module-ignored-but-quantized", module.name,
                   IsFloat8(weight->dtype)
                       ? "the config excludes the module, but its weight is FP8"
                       : "the config excludes the module, but its weight is FP4");
    }
    model.Add(reader.Describe(module, *weight));
  }
  PREPACK_TRY(
      RequireModules(model, config.where, "tensors named MODULE.weight of dtype F8_E4M3", "FP8"));
  return {};
}

}  // namespace prepack::fp8
