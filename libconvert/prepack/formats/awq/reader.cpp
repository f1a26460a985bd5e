// AWQ checkpoints of AutoAWQ, llm-awq (as safetensors), GPTQModel and AutoRound's plain AWQ export
// (mirrors AutoAWQ 0.2.9, awq/modules/linear/{gemm,gemv,gemv_fast}.py).
//
// Read: 4 bits, in the layouts gemm, gemv and gemv_fast; with zero points, or symmetric.
//
//     gemm, N = 8, K = 2, codes (k + n) mod 16: qweight is 75316420 86427531, file bytes
//         20 64 31 75  31 75 42 86         (channels 0|2 4|6 1|3 5|7 of one input, low|high nibble)
//
// The other drawings are in formats/awq/module.h and kernels/awq.h. The tensors decide
// which layout it is; a `version` that says otherwise is a finding. A module is quantized if and
// only if it has a qweight: `modules_to_not_convert`, which its readers understand in three ways,
// explains and decides nothing.
//
// AWQ also scales other tensors (norms, preceding projections): those must come from the same
// checkpoint, as they do here, never from the original model.

#include "prepack/formats/awq/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/config_keys.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/readers.h"

namespace prepack::awq {

namespace {

// AutoAWQ, transformers and Quark (awq::Config).
constexpr std::string_view kAwqKeys =
    "backend dequantize do_fuse exllama_config export fuse_max_seq_len modules_to_fuse "
    "modules_to_not_convert pack_method version";

}  // namespace

constinit const FormatKeys kKeys = {.known = {kAwqKeys, kGptqModelKeys, kAutoRoundKeys}};

namespace {

// What one declaration says; nullopt where it is silent.
struct Declared {
  std::optional<int64_t> bits;
  std::optional<int64_t> group_size;
  std::optional<bool> zero_point;
  std::optional<std::string> version;
  std::optional<std::string> pack_method;
};

Status Conflict(std::string_view where, std::string_view what, std::string_view found,
                std::string_view expected) {
  return Malformed(where, what).Found(found).Expected(expected).Id(FindingId("config-conflict"));
}

// The value under whichever of its names is there; two that differ are kMalformed.
Result<std::optional<int64_t>> IntOf(const QuantizationConfig& config,
                                     std::initializer_list<std::string_view> names) {
  std::optional<int64_t> first;
  for (const std::string_view name : names) {
    PREPACK_TRY_ASSIGN(const std::optional<int64_t> value,
                       OptionalInt(*config.fields, name, config.where));
    if (first && value && *first != *value) {
      return Conflict(FieldPath(config.where, name), "two names of one value disagree",
                      std::to_string(*value), std::to_string(*first));
    }
    if (!first) first = value;
  }
  return first;
}

Result<std::optional<bool>> ParseZeroPoint(const QuantizationConfig& config) {
  PREPACK_TRY_ASSIGN(const std::optional<bool> zero_point,
                     OptionalBool(*config.fields, "zero_point", config.where));
  PREPACK_TRY_ASSIGN(const std::optional<bool> sym,
                     OptionalBool(*config.fields, "sym", config.where));
  if (!sym) return zero_point;
  if (zero_point && *zero_point == *sym) {
    return Conflict(config.where, "sym and zero_point contradict each other",
                    fmt::format("both are {}", *sym), "opposite values");
  }
  return std::optional<bool>(!*sym);
}

// transformers 5 lets `version` win over `format`; both are only labels, the tensors decide.
Result<std::optional<std::string>> ParseVersion(const QuantizationConfig& config) {
  for (const std::string_view name : {"version", "format", "checkpoint_format"}) {
    PREPACK_TRY_ASSIGN(std::optional<std::string> value,
                       OptionalString(*config.fields, name, config.where));
    if (value) return std::optional(LowerCase(*value));
  }
  return std::optional<std::string>();
}

Result<Declared> ParseDeclared(const QuantizationConfig& config) {
  Declared declared;
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> bits, IntOf(config, {"bits", "w_bit"}));
  declared.bits = bits;
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> size,
                     IntOf(config, {"group_size", "q_group_size"}));
  if (size && *size <= 0 && *size != -1) {
    return Malformed(FieldPath(config.where, "group_size"), "the group size is not positive")
        .Found(std::to_string(*size))
        .Expected("a positive number, or -1 for one group per channel")
        .Id(FindingId("config-field-invalid"));
  }
  declared.group_size = size;
  PREPACK_TRY_ASSIGN(const std::optional<bool> zero_point, ParseZeroPoint(config));
  declared.zero_point = zero_point;
  PREPACK_TRY_ASSIGN(std::optional<std::string> version, ParseVersion(config));
  declared.version = std::move(version);
  PREPACK_TRY_ASSIGN(declared.pack_method,
                     OptionalString(*config.fields, "pack_method", config.where));
  const std::string order = declared.pack_method.value_or("order");
  if (order == "order" || order == "reorder") return declared;
  return Unsupported(FieldPath(config.where, "pack_method"), "unknown order of nibbles")
      .Found(fmt::format("\"{}\"", Printable(order)))
      .Expected("\"reorder\" or \"order\"")
      .Id(FindingId("storage-unsupported"));
}

// The copies of a config: what they say, too, must be what the first one says.
Status CompareCopy(const Declared& first, const QuantizationConfig& first_config,
                   const Declared& copy, const QuantizationConfig& config) {
  const auto differ = [&](std::string_view name, const auto& ours, const auto& theirs) {
    return CopiesDisagree(FieldPath(config.where, name), fmt::format("{}", theirs),
                          fmt::format("{}", ours), first_config.where);
  };
  const Config defaults;
  const auto compare = [&](std::string_view name, const auto& ours, const auto& theirs,
                           const auto& standard) -> Status {
    if (!theirs || *theirs == ours.value_or(standard)) return {};
    return differ(name, ours.value_or(standard), *theirs);
  };
  PREPACK_TRY(compare("bits", first.bits, copy.bits, defaults.bits));
  PREPACK_TRY(compare("group_size", first.group_size, copy.group_size, defaults.group_size));
  PREPACK_TRY(compare("zero_point", first.zero_point, copy.zero_point, defaults.zero_point));
  PREPACK_TRY(compare("pack_method", first.pack_method, copy.pack_method, defaults.pack_method));
  return compare("version", first.version, copy.version, defaults.version);
}

// Keys of GPTQModel's exports that change what the tensors are.
Status CheckSpecialKeys(const QuantizationConfig& config) {
  PREPACK_TRY_ASSIGN(const std::optional<std::string> pack,
                     OptionalString(*config.fields, "pack_dtype", config.where));
  if (pack && LowerCase(*pack) != "int32" && LowerCase(*pack) != "torch.int32") {
    return Unsupported(FieldPath(config.where, "pack_dtype"), "prepack reads only words of 32 bits")
        .Found(fmt::format("\"{}\"", Printable(*pack)))
        .Expected("\"int32\"")
        .Id(FindingId("pack-dtype"));
  }
  if (const Json* rotation = JsonMember(*config.fields, "rotation");
      rotation != nullptr && *rotation != false && *rotation != Json("")) {
    return Unsupported(FieldPath(config.where, "rotation"),
                       "rotated weights need the same rotation of the activations at run time")
        .Found(ShowJson(*rotation))
        .Hint("Quantize the model without rotation")
        .Id(FindingId("rotation"));
  }
  if (JsonMember(*config.fields, "adapter") != nullptr) {
    return Unsupported(FieldPath(config.where, "adapter"), "low-rank adapters are not supported")
        .Hint("Without the adapter the model computes something else; merge it before you quantize")
        .Id(FindingId("adapter-unsupported"));
  }
  return {};
}

}  // namespace

Result<Config> ParseConfig(std::span<const QuantizationConfig> configs) {
  const QuantizationConfig& first_config = configs.front();
  PREPACK_TRY_ASSIGN(const Declared first, ParseDeclared(first_config));
  for (const QuantizationConfig& config : configs) {
    PREPACK_TRY_ASSIGN(const Declared copy, ParseDeclared(config));
    PREPACK_TRY(CompareCopy(first, first_config, copy, config));
    PREPACK_TRY(CheckSpecialKeys(config));
  }
  Config config;
  config.where = first_config.where;
  config.bits = first.bits.value_or(config.bits);
  config.group_size = first.group_size.value_or(config.group_size);
  config.zero_point = first.zero_point.value_or(config.zero_point);
  config.version = first.version.value_or(config.version);
  config.pack_method = first.pack_method.value_or("");
  PREPACK_TRY_ASSIGN(const std::optional<bool> lm_head,
                     OptionalBool(*first_config.fields, "lm_head", config.where));
  config.lm_head = lm_head.value_or(false);
  PREPACK_TRY_ASSIGN(config.not_converted,
                     OptionalStrings(*first_config.fields, {"modules_to_not_convert"}, config.where,
                                     "a list of names"));
  config.dynamic = JsonMember(*first_config.fields, "dynamic");
  if (config.bits == 4) return config;
  return Unsupported(FieldPath(config.where, "bits"), "AWQ is defined for 4 bits")
      .Found(std::to_string(config.bits))
      .Expected("4")
      .Id(FindingId("awq-bits"));
}

namespace {

// Why a module without qweight cannot be left as it is; OK for one that is not quantized.
Status CheckPlain(const Checkpoint& checkpoint, const ModuleTensors& module) {
  const StoredTensor* qzeros = module.Find("qzeros");
  if (qzeros == nullptr) qzeros = module.Find("scaled_zeros");
  if (qzeros != nullptr) {
    return Malformed(checkpoint.Where(*qzeros), "qweight of the module is missing")
        .Hint("A shard is missing, or the index is wrong")
        .Id(FindingId("tensor-orphan"));
  }
  if (const StoredTensor* scales = module.Find("scales")) {
    return Unsupported(checkpoint.Where(*scales),
                       "activation scaling of AutoAWQ (falcon, mpt, starcoder2 …) is not supported")
        .Found("scales without qweight")
        .Hint("The runtime would have to divide the activations by these scales")
        .Id(FindingId("awq-scaled-activation"));
  }
  return {};
}

// Where `modules_to_not_convert` contradicts the tensors, for those whose reader believes it.
void CompareNotConverted(const Config& config, std::span<const ModuleTensors> modules,
                         FindingTally& findings) {
  const auto names = [](const ModuleTensors& module, const std::string& entry) {
    return module.name.find(entry) != std::string_view::npos;
  };
  for (const std::string& entry : config.not_converted) {
    const auto hit = std::ranges::find_if(modules, [&](const ModuleTensors& module) {
      return module.Find("qweight") != nullptr && names(module, entry);
    });
    if (hit == modules.end()) continue;
    findings.Add("module-ignored-but-quantized", hit->name,
                 fmt::format("in vLLM, which compares parts of names, \"{}\" of "
                             "modules_to_not_convert also matches this quantized module",
                             Printable(entry)));
  }
}

void ReportPlain(const Config& config, std::span<const ModuleTensors> modules,
                 const QuantizedModel& model, FindingTally& findings) {
  // With an empty list, vLLM looks at the tensors.
  if (config.not_converted.empty()) return;
  PlainModules plain;
  for (const ModuleTensors& module : modules) {
    const StoredTensor* weight = module.Find("weight");
    if (weight == nullptr || weight->shape.size() != 2 || !module.name.ends_with("_proj")) continue;
    const bool listed = std::ranges::any_of(config.not_converted, [&](const std::string& entry) {
      return module.name.find(entry) != std::string_view::npos;
    });
    if (listed) continue;
    plain.Add(module.name,
              "the module is not quantized, but modules_to_not_convert does not name it");
  }
  plain.Report(model, findings);
}

void CompareHead(const Config& config, bool quantized, FindingTally& findings) {
  if (config.lm_head == quantized) return;
  findings.Add("head-undeclared", "lm_head",
               quantized ? "lm_head is quantized, but the config does not say \"lm_head\": true"
                         : "the config says \"lm_head\": true, but lm_head is not quantized");
}

Settings SettingsOf(const Config& config) {
  Settings settings;
  settings.where = config.where;
  settings.bits = static_cast<uint32_t>(config.bits);
  settings.group_size = config.group_size;
  settings.zero_point = config.zero_point;
  settings.version = config.version;
  settings.pack_method = config.pack_method;
  return settings;
}

// Quark with transformers 5.6 or newer names all weights so, and no loader finds them.
Status CheckNames(const Checkpoint& checkpoint, std::span<const ModuleTensors> modules) {
  const auto is_float = [](const ModuleTensors& module) {
    const StoredTensor* weight = module.Find("qweight");
    return weight != nullptr && module.Find("scales") == nullptr &&
           (weight->dtype == DType::kBF16 || weight->dtype == DType::kF16 ||
            weight->dtype == DType::kF32);
  };
  const auto renamed = std::ranges::find_if(modules, is_float);
  if (renamed == modules.end()) return {};
  const StoredTensor& weight = *renamed->Find("qweight");
  return Malformed(checkpoint.Where(weight), "a weight in floating point is called qweight")
      .Found(fmt::format("{}, {} in all", DTypeName(weight.dtype),
                         std::ranges::count_if(modules, is_float)))
      .Expected("qweight for packed codes only")
      .Hint(
          "AMD Quark names them so in custom_mode=\"awq\" with transformers 5.6 or newer. Export "
          "the model again with custom_mode=\"quark\", or with an older transformers")
      .Id(FindingId("tensor-dtype"));
}

}  // namespace

Status Read(const ReadContext& context, QuantizedModel& model) {
  const auto& [checkpoint, configs, modules, findings] = context;
  PREPACK_TRY_ASSIGN(const Config config, ParseConfig(configs));
  PREPACK_TRY(CheckNames(checkpoint, modules));
  const Settings settings = SettingsOf(config);
  bool head_quantized = false;
  for (const ModuleTensors& module : modules) {
    if (module.Find("qweight") == nullptr) {
      model.AddError(CheckPlain(checkpoint, module));
      continue;
    }
    head_quantized = head_quantized || IsOutputHead(module.name);
    model.Add(DescribeModule(checkpoint, module, settings, findings));
  }
  PREPACK_TRY(RequireModules(model, config.where, "tensors named MODULE.qweight"));
  CompareHead(config, head_quantized, findings);
  CompareNotConverted(config, modules, findings);
  ReportPlain(config, modules, model, findings);
  return {};
}

}  // namespace prepack::awq
