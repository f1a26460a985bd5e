#pragma once

// The keys that quantizers write into a quantization_config, format by format. A key that is not
// among them may mean anything: weights that divide by their scale differ from those that multiply
// in one key. So it is never passed over in silence.

#include <array>
#include <span>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/quantization_config.h"

namespace prepack {

// In lower case, with a space between each and the next.
using Keys = std::string_view;

// A key that changes what the weights are, and that the reader of the format does not read.
struct MeantKey {
  std::string_view key;
  std::string_view what;
  FindingId id;
};

// Of the writers of one format. Each reader has its own (formats/formats.inc).
struct FormatKeys {
  std::array<Keys, 3> known;
  std::span<const MeantKey> meant = {};
};

// AutoRound 0.1 to 0.16 (SerializedCompressorConfig, QuantizationScheme): what it was called with
// goes into its exports of every format.
inline constexpr std::string_view kAutoRoundKeys =
    "act_bits act_data_type act_dynamic act_group_size act_sym amp autoround_version batch_size "
    "bits block_name_to_quantize data_type dataset device dynamic_max_gap enable_minmax_tuning "
    "enable_norm_bias_tuning enable_quanted_input gradient_accumulate_steps group_size iters "
    "low_gpu_mem_usage lr lr_scheduler minmax_lr model_free multimodal n_blocks nblocks "
    "not_use_best_mse nsamples provider quant_block_list regex_config rotation_config "
    "rotation_configs sampler scale_dtype seqlen spinquant_config static_attention_dtype "
    "static_attention_granularity static_kv_dtype static_kv_granularity super_bits "
    "super_group_size supported_types sym to_quant_block_names train_bs use_quant_input";

// GPTQModel 0.9 to 7.7 (BaseQuantizeConfig), of all of its methods.
inline constexpr std::string_view kGptqModelKeys =
    "act_group_aware activation adapter bits checkpoint_format damp_auto_increment damp_percent "
    "desc_act dynamic fallback foem format gptaq group_size hessian is_marlin_format lm_head meta "
    "mock_quantization moe mse offload_to_disk offload_to_disk_path pack_dtype pack_impl "
    "parallel_packing rotation smooth smoother static_groups sym true_sequential v2 v2_alpha "
    "v2_memory_device w_bit wbits q_group_size zero_point";

// Adds a finding ("config-key-unread") for every key that no known writer of the format writes, of
// the declaration itself and of its rules for single modules. A key that is known to change what
// the weights mean, and is not read, is kUnsupported. Formats that are not read have no keys here.
Status CheckConfigKeys(const QuantizationConfig& config, FindingTally& findings);

}  // namespace prepack
