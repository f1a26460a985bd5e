#include "prepack/formats/quantization_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/container/json_fields.h"
#include "prepack/container/model_config.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/foreign.h"

namespace prepack {

std::optional<VersionNumber> ParseVersionNumber(std::string_view text) {
  const char* end = text.data() + text.size();
  VersionNumber version;
  const auto [dot, error] = std::from_chars(text.data(), end, version.major);
  if (error != std::errc()) return std::nullopt;
  if (dot != end && *dot == '.') std::from_chars(dot + 1, end, version.minor);
  return version;
}

std::string ShowVersion(const VersionNumber& version) {
  return fmt::format("{}.{}", version.major, version.minor);
}

namespace {

constexpr std::array<std::string_view, 3> kCopies = {"quantize_config.json", "quant_config.json",
                                                     "quantization_config.json"};
constexpr std::string_view kModelOptFile = "hf_quant_config.json";
constexpr std::string_view kDeclaration = "quantization_config";
constexpr std::string_view kOldDeclaration = "compression_config";

// Places where a declaration may stand, each with what stands there.
class Places {
 public:
  void Add(std::string where, const Json* fields, bool beside = false) {
    if (fields != nullptr) found_.push_back({std::move(where), "", fields, beside});
  }
  void AddMember(std::string_view where, const Json& object, std::string_view key) {
    Add(fmt::format("{}: {}", where, key), JsonMember(object, key));
  }
  std::vector<QuantizationConfig> Take() { return std::move(found_); }

 private:
  std::vector<QuantizationConfig> found_;
};

// The paths of all declarations inside nested configs, the outermost first.
void FindNested(const Json& config, const ConfigPath& path, std::vector<ConfigPath>& found) {
  for (const auto& [key, value] : config.items()) {
    if (!value.is_object() || key == kDeclaration || key == kOldDeclaration) continue;
    ConfigPath inside = path;
    inside.push_back(key);
    if (JsonMember(value, kDeclaration) != nullptr) {
      found.push_back(inside);
      found.back().emplace_back(kDeclaration);
    }
    FindNested(value, inside, found);
  }
}

std::vector<QuantizationConfig> Locate(const Checkpoint& checkpoint) {
  Places places;
  const Json& config = checkpoint.config();
  for (const ConfigPath& path : DeclarationPaths(config)) {
    const Json* fields = &config;
    for (const std::string& key : path) fields = JsonMember(*fields, key);
    places.Add(fmt::format("config.json: {}", fmt::join(path, ".")), fields);
  }
  const auto& side = checkpoint.side_configs();
  if (const auto params = side.find("params.json"); params != side.end() && config.empty()) {
    places.AddMember("params.json", params->second, kDeclaration);
    places.AddMember("params.json", params->second, "quantization");
  }
  for (const std::string_view name : kCopies) {
    if (const auto copy = side.find(name); copy != side.end()) {
      places.Add(std::string(name), &copy->second, true);
    }
  }
  if (const auto copy = side.find(kModelOptFile); copy != side.end()) {
    places.Add(fmt::format("{}: quantization", kModelOptFile),
               JsonMember(copy->second, "quantization"), true);
  }
  return places.Take();
}

// The names that vLLM and transformers know one method by.
std::string CanonicalMethod(std::string_view name) {
  std::string method = LowerCase(name);
  std::ranges::replace(method, '_', '-');
  if (method == "intel/auto-round" || method == "inc") return "auto-round";
  if (method == "modelopt-fp8" || method == "modelopt-fp4" || method == "modelopt-mixed") {
    return "modelopt";
  }
  return method;
}

// The method that only one quantizer's keys can mean; empty when they do not tell.
std::string MethodOfKeys(const Json& fields) {
  const auto has = [&](std::string_view key) { return fields.contains(key); };
  if (has("quant_algo")) return "modelopt";
  if (has("config_groups")) return "compressed-tensors";
  if (has("autoround_version")) return "auto-round";
  if (has("zero_point") || has("w_bit") || has("q_group_size")) return "awq";
  if (has("bits") && (has("desc_act") || has("sym") || has("true_sequential"))) return "gptq";
  return "";
}

// Fills in the method, and steps into a declaration that stands once more inside itself, as some
// tools wrote it.
Status Complete(QuantizationConfig& config) {
  PREPACK_TRY(RequireObject(*config.fields, config.where));
  if (const Json* inner = JsonMember(*config.fields, "quantization_config")) {
    config.where = FieldPath(config.where, "quantization_config");
    config.fields = inner;
    PREPACK_TRY(RequireObject(*inner, config.where));
  }
  for (const std::string_view key : {"quant_method", "method"}) {
    PREPACK_TRY_ASSIGN(std::optional<std::string> method,
                       OptionalString(*config.fields, key, config.where));
    if (method) {
      config.method = CanonicalMethod(*method);
      return {};
    }
  }
  config.method = MethodOfKeys(*config.fields);
  return {};
}

}  // namespace

std::vector<ConfigPath> DeclarationPaths(const Json& config) {
  std::vector<ConfigPath> paths;
  const auto add = [&](const Json* object, ConfigPath path) {
    if (object != nullptr && JsonMember(*object, path.back()) != nullptr) {
      paths.push_back(std::move(path));
    }
  };
  add(&config, {std::string(kDeclaration)});
  for (const std::string_view nested : NestedConfigNames()) {
    add(JsonMember(config, nested), {std::string(nested), std::string(kDeclaration)});
  }
  add(&config, {std::string(kOldDeclaration)});
  if (paths.empty()) FindNested(config, {}, paths);
  return paths;
}

namespace {

// A file of another quantizer, beside a declaration in config.json.
bool IsLeftBehind(const QuantizationConfig& config, const QuantizationConfig& first) {
  return config.beside && !first.beside && !config.method.empty() && config.method != first.method;
}

Result<std::vector<QuantizationConfig>> FindAll(const Checkpoint& checkpoint) {
  std::vector<QuantizationConfig> configs = Locate(checkpoint);
  for (QuantizationConfig& config : configs) {
    PREPACK_TRY(Complete(config));
  }
  return configs;
}

}  // namespace

Status ReportLeftBehind(const Checkpoint& checkpoint, FindingTally& findings) {
  PREPACK_TRY_ASSIGN(const std::vector<QuantizationConfig> configs, FindAll(checkpoint));
  for (const QuantizationConfig& config : configs) {
    if (!IsLeftBehind(config, configs.front())) continue;
    findings.Add("config-left-behind", config.where,
                 fmt::format("the file declares \"{}\", and {} \"{}\", which counts",
                             Printable(config.method), configs.front().where,
                             Printable(configs.front().method)));
  }
  return {};
}

Result<std::vector<QuantizationConfig>> FindQuantizationConfigs(const Checkpoint& checkpoint) {
  PREPACK_TRY_ASSIGN(std::vector<QuantizationConfig> configs, FindAll(checkpoint));
  if (configs.empty()) return RefuseUndeclared(checkpoint);
  const QuantizationConfig declared = configs.front();
  std::erase_if(configs,
                [&](const QuantizationConfig& config) { return IsLeftBehind(config, declared); });
  const QuantizationConfig& first = configs.front();
  if (first.method.empty()) {
    if (IsMlx(checkpoint)) return RefuseMlx(first.where);
    if (JsonMember(*first.fields, "qformat_weight") != nullptr) {
      return Unsupported(first.where, "Mistral's own form of a checkpoint is not supported")
          .Found("qformat_weight")
          .Expected("config.json, and tensors named as transformers names them")
          .Hint("Most releases also have the model in that form: download all of the files")
          .Id(FindingId("method-unsupported"));
    }
    return Unsupported(first.where, "quant_method is missing, so the format is unknown")
        .Id(FindingId("config-method-missing"));
  }
  for (QuantizationConfig& config : configs) {
    if (config.method.empty()) config.method = first.method;
    if (config.method == first.method) continue;
    return Malformed(config.where, "two declarations name different quantization methods")
        .Found(fmt::format("\"{}\"", Printable(config.method)))
        .Expected(fmt::format("\"{}\", as {} says", Printable(first.method), first.where))
        .Hint("Remove the declaration that does not belong to these weights")
        .Id(FindingId("config-conflict"));
  }
  return configs;
}

namespace {

// Keys in lower case, with a space between each and the next.
using Keys = std::string_view;

// Every declaration may name its method, and nest once more.
constexpr std::string_view kAnyKeys = "quant_method method quantization_config";

// AutoRound 0.1 to 0.16 (SerializedCompressorConfig, QuantizationScheme): what it was called with
// goes into its exports of every format.
constexpr std::string_view kAutoRoundKeys =
    "act_bits act_data_type act_dynamic act_group_size act_sym amp autoround_version batch_size "
    "bits block_name_to_quantize data_type dataset device dynamic_max_gap enable_minmax_tuning "
    "enable_norm_bias_tuning enable_quanted_input gradient_accumulate_steps group_size iters "
    "low_gpu_mem_usage lr lr_scheduler minmax_lr model_free multimodal n_blocks nblocks "
    "not_use_best_mse nsamples provider quant_block_list regex_config rotation_config "
    "rotation_configs sampler scale_dtype seqlen spinquant_config static_attention_dtype "
    "static_attention_granularity static_kv_dtype static_kv_granularity super_bits "
    "super_group_size supported_types sym to_quant_block_names train_bs use_quant_input";

// GPTQModel 0.9 to 7.7 (BaseQuantizeConfig), of all of its methods.
constexpr std::string_view kGptqModelKeys =
    "act_group_aware activation adapter bits checkpoint_format damp_auto_increment damp_percent "
    "desc_act dynamic fallback foem format gptaq group_size hessian is_marlin_format lm_head meta "
    "mock_quantization moe mse offload_to_disk offload_to_disk_path pack_dtype pack_impl "
    "parallel_packing rotation smooth smoother static_groups sym true_sequential v2 v2_alpha "
    "v2_memory_device w_bit wbits q_group_size zero_point";

// AutoGPTQ, optimum and transformers (GPTQConfig).
constexpr std::string_view kGptqKeys =
    "backend cache_block_outputs dequantize disable_exllama exllama_config max_input_length "
    "model_file_base_name model_name_or_path model_seqlen module_name_preceding_first_block "
    "modules_in_block_to_quantize modules_to_not_convert pad_token_id quantizer tokenizer "
    "use_cuda_fp16 use_exllama version";

// AutoAWQ, transformers and Quark (awq::Config).
constexpr std::string_view kAwqKeys =
    "backend dequantize do_fuse exllama_config export fuse_max_seq_len modules_to_fuse "
    "modules_to_not_convert pack_method version";

// compressed-tensors 0.1 to 0.20 and transformers (CompressedTensorsConfig); the last three are of
// AutoRound's exports.
constexpr std::string_view kCompressedTensorsKeys =
    "config_groups dequantize format global_compression_ratio ignore kv_cache_scheme "
    "quantization_status run_compressed sparsity_config transform_config use_optimized_inference "
    "version provider attention_input_activations fp8_dtype_flavor";

// transformers (FineGrainedFP8Config), AutoFP8, Quark, the publishers of DeepSeek, MiniMax and
// Qwen; the last two are GPTQModel's.
constexpr std::string_view kFp8Keys =
    "activation_scheme dequantize expert_dtype export fmt ignored_layers kv_cache_scheme "
    "modules_to_convert modules_to_not_convert packed_modules_mapping scale_fmt weight_block_size "
    "weight_per_tensor act_per_tensor extra_config weight_scale_method weight_scale_semantics";

// transformers (FbgemmFp8Config) and the publishers of Llama 3.1.
constexpr std::string_view kFbgemmKeys = "activation_scale_ub modules_to_not_convert";

// transformers (Mxfp4Config) and the publisher of gpt-oss.
constexpr std::string_view kMxfp4Keys = "dequantize modules_to_not_convert";

// nvidia-modelopt 0.47 (convert_hf_quant_config_format) in config.json, and in the file of its own.
constexpr std::string_view kModelOptKeys =
    "config_groups exclude_modules group_size ignore kv_cache_quant_algo kv_cache_scheme producer "
    "quant_algo quantized_layers";

// amd-quark 0.13 (Config and its export).
constexpr std::string_view kQuarkKeys =
    "algo_config exclude export global_quant_config kv_cache_post_rope kv_cache_quant_config "
    "layer_quant_config layer_type_quant_config log_severity_level min_kv_scale pack_method "
    "quant_mode softmax_quant_spec version";

constexpr std::string_view kAutoRoundOwnKeys =
    "backend damp_percent dequantize desc_act extra_config packing_format static_groups "
    "true_sequential modules_to_not_convert";

// What rules for single modules may hold beside what the whole config may.
constexpr std::string_view kRuleKeys = "clip fixed_by_user in_blocks scheme tmp_dtype";

// A key that changes what the weights are, and that the reader of the format does not read.
struct MeantKey {
  std::string_view key;
  std::string_view what;
  FindingId id;
};
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

struct FormatKeys {
  std::string_view format;
  std::array<Keys, 4> known;
  std::span<const MeantKey> meant;
};

constexpr std::array<FormatKeys, 10> kFormatKeys = {{
    {"compressed-tensors", {kAnyKeys, kCompressedTensorsKeys}, {}},
    {"fp8", {kAnyKeys, kFp8Keys, kGptqModelKeys, kAutoRoundKeys}, kFp8Meant},
    {"fbgemm-fp8", {kAnyKeys, kFbgemmKeys}, {}},
    {"mxfp8", {kAnyKeys, kFp8Keys}, kFp8Meant},
    {"modelopt", {kAnyKeys, kModelOptKeys}, {}},
    {"quark", {kAnyKeys, kQuarkKeys}, {}},
    {"awq", {kAnyKeys, kAwqKeys, kGptqModelKeys, kAutoRoundKeys}, {}},
    {"auto-round", {kAnyKeys, kAutoRoundOwnKeys, kAutoRoundKeys}, {}},
    {"gptq", {kAnyKeys, kGptqKeys, kGptqModelKeys, kAutoRoundKeys}, {}},
    {"mxfp4", {kAnyKeys, kMxfp4Keys}, {}},
}};

bool Contains(Keys keys, std::string_view key) {
  while (!keys.empty()) {
    const size_t end = std::min(keys.find(' '), keys.size());
    if (keys.substr(0, end) == key) return true;
    keys.remove_prefix(std::min(end + 1, keys.size()));
  }
  return false;
}

bool IsKnown(const FormatKeys& format, std::string_view key, bool in_rule) {
  return (in_rule && Contains(kRuleKeys, key)) ||
         std::ranges::any_of(format.known, [&](Keys keys) { return Contains(keys, key); });
}

// Neither null, false nor empty.
bool SaysSomething(const Json& value) {
  return !(value.is_null() || value == Json(false) || value == Json("") ||
           (value.is_structured() && value.empty()));
}

Status CheckKeys(const FormatKeys& format, const Json& fields, const std::string& where,
                 bool in_rule, FindingTally& findings) {
  for (const auto& [key, value] : fields.items()) {
    if (!SaysSomething(value)) continue;
    const std::string lower = LowerCase(key);
    const auto meant = std::ranges::find(format.meant, lower, &MeantKey::key);
    if (meant != format.meant.end()) {
      return Unsupported(FieldPath(where, Printable(key)), meant->what)
          .Found(ShowJson(value))
          .Hint("Quantize the model without it")
          .Id(meant->id);
    }
    if (IsKnown(format, lower, in_rule)) continue;
    findings.Add("config-key-unread", FieldPath(where, Printable(key)),
                 fmt::format("no known writer of {} checkpoints writes this key, and it was not "
                             "read ({})",
                             format.format, ShowJson(value)));
  }
  return {};
}

}  // namespace

Status CheckConfigKeys(const QuantizationConfig& config, FindingTally& findings) {
  const auto format = std::ranges::find(kFormatKeys, config.method, &FormatKeys::format);
  if (format == kFormatKeys.end() || !config.fields->is_object()) return {};
  Status status = CheckKeys(*format, *config.fields, config.where, false, findings);
  for (const std::string_view key : {"dynamic", "extra_config"}) {
    const Json* rules = JsonMember(*config.fields, key);
    if (rules == nullptr || !rules->is_object()) continue;
    for (const auto& [name, rule] : rules->items()) {
      if (!status.ok()) return status;
      if (!rule.is_object()) continue;
      const std::string place = FieldPath(FieldPath(config.where, key), Printable(name));
      status = CheckKeys(*format, rule, place, true, findings);
    }
  }
  return status;
}

}  // namespace prepack
