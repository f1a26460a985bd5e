#include "formats/auto_round_module.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "formats/awq_module.h"
#include "formats/finding.h"
#include "formats/json_fields.h"
#include "formats/trimmed_linear.h"

namespace prepack {
namespace {

// By the columns of qweight and scales, which always have N of the one and N or N/8 of the other.
enum class Shape : uint8_t { kGptq, kAwq, kOther };

Shape ShapeOf(const ModuleTensors& module) {
  const StoredTensor* qweight = module.Find("qweight");
  const StoredTensor* scales = module.Find("scales");
  if (scales == nullptr || scales->shape.size() != 2 || qweight->shape.size() != 2) {
    return Shape::kOther;
  }
  if (qweight->shape[1] == scales->shape[1]) return Shape::kGptq;
  return CheckedMul(qweight->shape[1], 8) == scales->shape[1] ? Shape::kAwq : Shape::kOther;
}

Status CheckShape(const Checkpoint& checkpoint, const ModuleTensors& module,
                  const AutoRoundConfig& config) {
  const Shape shape = ShapeOf(module);
  const bool awq = config.packing.packing == AutoRoundPacking::kAwq;
  if (shape == Shape::kOther || (shape == Shape::kAwq) == awq) return {};
  return Malformed(checkpoint.Where(*module.Find("qweight")),
                   fmt::format("the tensors are {}-packed, but packing_format says otherwise",
                               awq ? "GPTQ" : "AWQ"))
      .Found(fmt::format("qweight {}, scales {}", ShowShape(module.Find("qweight")->shape),
                         ShowShape(module.Find("scales")->shape)))
      .Expected(fmt::format("packing_format \"{}\", as {} says",
                            config.packing.name.empty() ? "(absent)" : config.packing.name,
                            config.where))
      .Id(FindingId("autoround-packing-mismatch"));
}

Status CheckTensors(const Checkpoint& checkpoint, const ModuleTensors& module) {
  for (const std::string_view suffix : {"act_scales", "w_bf16_to_fp8_scale"}) {
    if (const StoredTensor* tensor = module.Find(suffix)) {
      return Unsupported(checkpoint.Where(*tensor),
                         "AutoRound exports with quantized activations are not read")
          .Hint("Quantize only the weights (scheme W4A16 or the like)")
          .Id(FindingId("autoround-activations"));
    }
  }
  for (const auto& [suffix, tensor] : module.tensors) {
    if (!suffix.starts_with("spinquant_")) continue;
    return Unsupported(checkpoint.Where(*tensor),
                       "rotated weights need the same rotation of the activations at run time")
        .Hint("Quantize the model without rotation")
        .Id(FindingId("rotation"));
  }
  return {};
}

// True when the zero points of the first group are one of the two constants of symmetric modules:
// every field 2^(bits − 1), or one less.
Result<bool> LooksSymmetric(const Checkpoint& checkpoint, const ModuleTensors& module,
                            uint32_t bits) {
  const StoredTensor* qzeros = module.Find("qzeros");
  const StoredTensor* scales = module.Find("scales");
  if (qzeros == nullptr || qzeros->dtype != DType::kI32 || qzeros->shape.size() != 2 ||
      qzeros->bytes == 0 || scales == nullptr || scales->shape.size() != 2) {
    return true;  // what is wrong with it is found out later
  }
  // Whole bytes of fields that belong to channels; those of padding need not be like them.
  const uint64_t bytes = std::min(qzeros->shape[1] * 4, scales->shape[1] / 8 * bits);
  std::vector<std::byte> row(bytes);
  Status status = checkpoint.Read(*qzeros, 0, row);
  if (!status.ok()) return status;
  const auto all_are = [&](uint32_t field) {
    for (uint64_t bit = 0; bit < bytes * 8; ++bit) {
      const unsigned found = std::to_integer<unsigned>(row[bit / 8]) >> (bit % 8) & 1U;
      if (found != (field >> (bit % bits) & 1U)) return false;
    }
    return true;
  };
  const uint32_t stored = 1U << (bits - 1);
  return all_are(stored) || all_are(stored - 1);
}

// K of the model for layers whose name says which it is; nullopt for others.
std::optional<uint64_t> ModelInputs(const Json& config, std::string_view module) {
  const Json* text = JsonMember(config, "text_config");
  const Json& model = text != nullptr ? *text : config;
  const auto field = [&](std::string_view key) -> std::optional<uint64_t> {
    const Result<std::optional<int64_t>> value = OptionalInt(model, key, "config.json");
    if (!value.ok() || !*value || **value <= 0) return std::nullopt;
    return static_cast<uint64_t>(**value);
  };
  const std::string_view last = module.substr(module.rfind('.') + 1);
  static constexpr std::array<std::string_view, 6> kHidden = {"q_proj",    "k_proj",  "v_proj",
                                                              "gate_proj", "up_proj", "lm_head"};
  if (std::ranges::find(kHidden, last) != kHidden.end()) return field("hidden_size");
  if (last == "down_proj") {
    return field(module.find(".experts.") == std::string_view::npos ? "intermediate_size"
                                                                    : "moe_intermediate_size");
  }
  if (last != "o_proj") return std::nullopt;
  const std::optional<uint64_t> heads = field("num_attention_heads");
  const std::optional<uint64_t> size = field("head_dim");
  return heads && size ? CheckedMul(*heads, *size) : field("hidden_size");
}

// The calibration-free export pads K up to whole groups.
std::unique_ptr<QuantizedLinear> Trim(const Checkpoint& checkpoint,
                                      std::unique_ptr<QuantizedLinear> linear,
                                      FindingTally& findings) {
  const std::optional<uint64_t> k = ModelInputs(checkpoint.config(), linear->module());
  if (!k || *k % 2 != 0 || *k % linear->scheme().group_size == 0 ||
      CheckedAlignUp(*k, linear->scheme().group_size) != linear->k()) {
    return linear;
  }
  findings.Add("autoround-padded", linear->module(),
               fmt::format("the module holds {} input channels, the model has {}: padded export; "
                           "the extra ones are dropped",
                           linear->k(), *k));
  return TrimInputs(std::move(linear), *k);
}

Result<std::unique_ptr<QuantizedLinear>> DescribeAwq(const Checkpoint& checkpoint,
                                                     const ModuleTensors& module,
                                                     const AutoRoundConfig& config,
                                                     const AutoRoundScheme& scheme,
                                                     FindingTally& findings) {
  AwqSettings settings;
  settings.where = config.where;
  settings.bits = scheme.quantized() ? static_cast<uint32_t>(scheme.bits) : 4;
  settings.group_size = scheme.group_size;
  // Zero points that are stored are always right; without a word about them, look.
  settings.zero_point = !scheme.sym.value_or(module.Find("qzeros") == nullptr);
  settings.version = "gemm";
  return DescribeAwqModule(checkpoint, module, settings, findings);
}

Result<std::unique_ptr<QuantizedLinear>> DescribeGptq(const Checkpoint& checkpoint,
                                                      const ModuleTensors& module,
                                                      const AutoRoundConfig& config,
                                                      const AutoRoundScheme& scheme,
                                                      GptqZeros zeros, GptqZeroSample& sample,
                                                      FindingTally& findings) {
  const Result<GptqSettings> settings =
      AutoRoundGptqSettings(checkpoint, module, config, scheme, zeros);
  if (!settings.ok()) return settings.status();
  Result<std::unique_ptr<QuantizedLinear>> linear =
      DescribeGptqModule(checkpoint, module, *settings, findings);
  if (!linear.ok()) return linear;
  const Result<GptqZeroSample> own = SampleGptqZeros(checkpoint, module, *settings);
  if (!own.ok()) return own.status();
  Status status = CheckGptqZeros(*own, zeros, module.name, kAutoRoundZerosHint, findings);
  if (!status.ok()) return status;
  sample += *own;
  return config.model_free ? Trim(checkpoint, *std::move(linear), findings) : std::move(linear);
}

}  // namespace

Result<GptqSettings> AutoRoundGptqSettings(const Checkpoint& checkpoint,
                                           const ModuleTensors& module,
                                           const AutoRoundConfig& config,
                                           const AutoRoundScheme& scheme, GptqZeros zeros) {
  GptqSettings settings;
  settings.where = config.where;
  settings.bits = scheme.quantized() ? static_cast<uint32_t>(scheme.bits) : 4;
  settings.group_size = scheme.group_size;
  settings.word_borrow = true;
  settings.bits_from_tensors = true;
  settings.zeros = zeros;
  if (scheme.sym) {
    settings.symmetric = *scheme.sym;
    return settings;
  }
  const Result<bool> symmetric = LooksSymmetric(checkpoint, module, settings.bits);
  if (!symmetric.ok()) return symmetric.status();
  settings.symmetric = *symmetric;
  return settings;
}

Result<std::unique_ptr<QuantizedLinear>> DescribeAutoRoundModule(
    const Checkpoint& checkpoint, const ModuleTensors& module, const AutoRoundConfig& config,
    const AutoRoundScheme& scheme, GptqZeros zeros, GptqZeroSample& sample,
    FindingTally& findings) {
  Status status = CheckTensors(checkpoint, module);
  if (status.ok()) status = CheckShape(checkpoint, module, config);
  if (!status.ok()) return status;
  return config.packing.packing == AutoRoundPacking::kAwq
             ? DescribeAwq(checkpoint, module, config, scheme, findings)
             : DescribeGptq(checkpoint, module, config, scheme, zeros, sample, findings);
}

Status CheckAutoRoundPlain(const Checkpoint& checkpoint, const ModuleTensors& module) {
  if (const StoredTensor* qzeros = module.Find("qzeros")) {
    return Malformed(checkpoint.Where(*qzeros), "qweight of the module is missing")
        .Hint("A shard is missing, or the index is wrong")
        .Id(FindingId("tensor-orphan"));
  }
  // MX, NVFP4 and FP8 weights, and Apple's: the config may not say so.
  for (const std::string_view suffix :
       {"weight_packed", "weight_scale", "weight_scale_inv", "biases"}) {
    if (const StoredTensor* tensor = module.Find(suffix)) {
      return Unsupported(checkpoint.Where(*tensor), "weights that are not plain integers")
          .Hint("Quantize the model to integers (scheme W4A16 or the like)")
          .Id(FindingId("autoround-scheme"));
    }
  }
  return CheckTensors(checkpoint, module);
}

}  // namespace prepack
