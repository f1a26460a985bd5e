// Checkpoints of AMD's Quark in FP8, MXFP4, NVFP4 and integers (mirrors amd-quark 0.13,
// torch/export, and vLLM 0.33, layers/quantization/quark/).
//
//     MODULE.weight        F8_E4M3 [N, K]
//     MODULE.weight_scale  BF16, F16 or F32, multiplies: [] per_tensor, or [N] per_channel
//     MODULE.input_scale   [], where activations are static
//
// MXFP4 and NVFP4 are stored as fp4/module.h says, integers as quark/integers.h does. AMDFP4 has
// the same tensors as MXFP4 and means other numbers.
//
// The specification of a module is that of the first pattern of layer_quant_config which matches
// its name, else that of its class, else the global one. output_scale, of the key-value cache,
// passes through.

#include <fmt/format.h>

#include <memory>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/config_keys.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/fp4/module.h"
#include "prepack/formats/fp8/module.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/quark/config.h"
#include "prepack/formats/quark/integers.h"
#include "prepack/formats/readers.h"
#include "prepack/model/module_name.h"

namespace prepack::quark {

namespace {

// amd-quark 0.13 (Config and its export).
constexpr std::string_view kQuarkKeys =
    "algo_config exclude export global_quant_config kv_cache_post_rope kv_cache_quant_config "
    "layer_quant_config layer_type_quant_config log_severity_level min_kv_scale pack_method "
    "quant_mode softmax_quant_spec version";

}  // namespace

constinit const FormatKeys kKeys = {.known = {kQuarkKeys}};

namespace {

bool IsQuarkQuantized(const ModuleTensors& module, const StoredTensor& weight) {
  const bool codes =
      weight.dtype == DType::kU8 || weight.dtype == DType::kI8 || weight.dtype == DType::kI32;
  return fp8::IsFloat8(weight.dtype) || (codes && module.Find("weight_scale") != nullptr);
}

// What makes a module unreadable, whatever its weights are.
Status CheckSideTensors(const Config& config, const ModuleTensors& module) {
  const bool stored = module.Find("input_rotation") != nullptr;
  if (stored || config.rotated.contains(module.name)) {
    return Unsupported(module.name, "the module rotates its inputs at run time")
        .Found(stored ? "input_rotation" : "online_rotation_layers in the config")
        .Expected("only rotations that are folded into the weights")
        .Hint(kWithoutRotation)
        .Id(FindingId("rotation"));
  }
  if (const StoredTensor* scale = module.Find("bias_scale")) {
    const StoredTensor* bias = module.Find("bias");
    return Unsupported(module.name, "the bias is quantized")
        .Found(fmt::format("{} with {}", bias == nullptr ? "no bias" : DTypeName(bias->dtype),
                           LastPart(scale->name)))
        .Expected("a bias in floating point")
        .Hint("Quantize the model again, and leave `bias` out of the quantization config")
        .Id(FindingId("bias-quantized"));
  }
  return {};
}

// The module as one rule has it.
Result<std::unique_ptr<QuantizedLinear>> DescribeAs(const Checkpoint& checkpoint,
                                                    const Config& config, const Spec& spec,
                                                    const ModuleTensors& module,
                                                    const StoredTensor& weight) {
  if (spec.fp4) return fp4::DescribeModule(checkpoint, module, *spec.fp4);
  if (spec.integers) {
    IntegerMeaning meaning = *spec.integers;
    meaning.awq_order = config.awq_order;
    return DescribeIntegers(checkpoint, module, meaning);
  }
  if (!spec.fp8) {
    return Malformed(module.name, "the module is quantized, but the config does not mention it")
        .Expected(
            fmt::format("a weight in {}.global_quant_config or layer_quant_config", config.where))
        .Id(FindingId("module-without-group"));
  }
  PREPACK_TRY(fp8::CheckWeight(checkpoint, module.name, weight));
  const StoredTensor* scale = module.Find("weight_scale");
  if (scale == nullptr) {
    return fp8::MissingScale(checkpoint, weight, fmt::format("{}.weight_scale", module.name));
  }
  return fp8::DescribeModule(checkpoint, module.name, weight, *scale, module.Find("input_scale"),
                             *spec.fp8);
}

// The rule that the module was quantized by: of several, the one that its tensors fit. What is not
// read may fit, too.
Result<const Spec*> FindSpec(const Checkpoint& checkpoint, const Config& config,
                             const ModuleTensors& module, const StoredTensor& weight) {
  const std::vector<const Config::Rule*> rules = config.RulesOf(module.name);
  if (rules.size() < 2) return &config.SpecOf(module.name);
  std::vector<const Config::Rule*> fitting;
  for (const Config::Rule* rule : rules) {
    const bool unread = !rule->spec.other.empty();
    if (unread || DescribeAs(checkpoint, config, rule->spec, module, weight).ok()) {
      fitting.push_back(rule);
    }
  }
  if (fitting.empty()) return &rules.front()->spec;
  if (fitting.size() == 1) return &fitting.front()->spec;
  return Malformed(module.name, "two rules of the config match the module, and they differ")
      .Found(fmt::format("\"{}\" and \"{}\"", Printable(fitting[0]->pattern),
                         Printable(fitting[1]->pattern)))
      .Expected("one rule, or tensors that fit only one of them")
      .Hint(
          "Quark took the rule that came first, but config.json has them sorted by name. Remove "
          "from layer_quant_config the rule that was not used")
      .Id(FindingId("module-rules-differ"));
}

Result<std::unique_ptr<QuantizedLinear>> DescribeQuark(const Checkpoint& checkpoint,
                                                       const Config& config,
                                                       const ModuleTensors& module,
                                                       const StoredTensor& weight) {
  PREPACK_TRY(CheckSideTensors(config, module));
  PREPACK_TRY_ASSIGN(const Spec* spec, FindSpec(checkpoint, config, module, weight));
  if (!spec->other.empty()) {
    return Unsupported(module.name, spec->twice
                                        ? "weights that are quantized twice are not supported"
                                        : "weights of this kind are not supported")
        .Found(spec->other)
        .Expected(
            "int4, uint4, int8 or uint8; fp8_e4m3 per_tensor or per_channel; MXFP4 in groups of "
            "32, or NVFP4")
        .Hint("Quantize the float model to one of these")
        .Id(FindingId("scheme-unsupported"));
  }
  if (!spec->inputs.ok()) return Status(spec->inputs).In(module.name);
  return DescribeAs(checkpoint, config, *spec, module, weight);
}

// A weight in floating point that the config wants quantized, by the name of a linear layer.
Result<bool> IsTargetedPlain(const Config& config, const ModuleTensors& module,
                             const StoredTensor& weight) {
  if (weight.shape.size() != 2 || !module.name.ends_with("_proj")) return false;
  const Spec& spec = config.SpecOf(module.name);
  if (!spec.quantizes()) return false;
  PREPACK_TRY_ASSIGN(const bool excluded, config.Excludes(module.name));
  return !excluded;
}

Status AddQuarkModule(const Checkpoint& checkpoint, const Config& config,
                      const ModuleTensors& module, QuantizedModel& model, PlainModules& plain,
                      FindingTally& findings) {
  const StoredTensor* weight = module.Find("weight");
  if (weight == nullptr) return {};
  if (!IsQuarkQuantized(module, *weight)) {
    if (!CheckModuleName(module.name).ok()) return {};
    PREPACK_TRY_ASSIGN(const bool targeted, IsTargetedPlain(config, module, *weight));
    if (targeted) {
      plain.Add(module.name, "the config does not exclude the module, but it is not quantized");
    }
    return {};
  }
  PREPACK_TRY(CheckModuleName(module.name));
  PREPACK_TRY_ASSIGN(const bool excluded, config.Excludes(module.name));
  if (excluded) {
    findings.Add("module-ignored-but-quantized", module.name,
                 "the config excludes the module, but it is quantized");
  }
  model.Add(DescribeQuark(checkpoint, config, module, *weight));
  return {};
}

}  // namespace

Status Read(const ReadContext& context, QuantizedModel& model) {
  const auto& [checkpoint, configs, modules, findings] = context;
  PREPACK_TRY_ASSIGN(const Config config, ParseConfigs(configs));
  PlainModules plain;
  for (const ModuleTensors& module : modules) {
    model.AddError(AddQuarkModule(checkpoint, config, module, model, plain, findings));
  }
  PREPACK_TRY(RequireModules(model, config.where,
                             "tensors named MODULE.weight of dtype F8_E4M3, I32, I8 or U8"));
  plain.Report(model, findings);
  return {};
}

}  // namespace prepack::quark
