#include "formats/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "formats/finding.h"
#include "formats/json_fields.h"

namespace prepack {

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

// AutoAWQ and transformers (AwqConfig).
constexpr std::string_view kAwqKeys =
    "backend dequantize do_fuse exllama_config fuse_max_seq_len modules_to_fuse "
    "modules_to_not_convert version";

// compressed-tensors 0.1 to 0.20 and transformers (CompressedTensorsConfig); the last three are of
// AutoRound's exports.
constexpr std::string_view kCompressedTensorsKeys =
    "config_groups dequantize format global_compression_ratio ignore kv_cache_scheme "
    "quantization_status run_compressed sparsity_config transform_config use_optimized_inference "
    "version provider attention_input_activations fp8_dtype_flavor";

// transformers (FineGrainedFP8Config), AutoFP8, the publishers of DeepSeek, MiniMax and Qwen; the
// last two are GPTQModel's.
constexpr std::string_view kFp8Keys =
    "activation_scheme dequantize expert_dtype fmt ignored_layers kv_cache_scheme "
    "modules_to_convert modules_to_not_convert packed_modules_mapping scale_fmt weight_block_size "
    "weight_per_tensor act_per_tensor extra_config weight_scale_method weight_scale_semantics";

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
    {"adapter", "low-rank adapters are not read", "adapter-unsupported"},
    {"store_dtype", "weights that are stored in another type than FP8 are not read",
     "config-key-unsupported"},
});

struct FormatKeys {
  std::string_view format;
  std::array<Keys, 4> known;
  std::span<const MeantKey> meant;
};

constexpr std::array<FormatKeys, 5> kFormatKeys = {{
    {"compressed-tensors", {kAnyKeys, kCompressedTensorsKeys}, {}},
    {"fp8", {kAnyKeys, kFp8Keys, kGptqModelKeys, kAutoRoundKeys}, kFp8Meant},
    {"awq", {kAnyKeys, kAwqKeys, kGptqModelKeys, kAutoRoundKeys}, {}},
    {"auto-round", {kAnyKeys, kAutoRoundOwnKeys, kAutoRoundKeys}, {}},
    {"gptq", {kAnyKeys, kGptqKeys, kGptqModelKeys, kAutoRoundKeys}, {}},
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
