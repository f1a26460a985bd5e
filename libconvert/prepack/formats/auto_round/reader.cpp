// AutoRound checkpoints, whose method vLLM calls INC (mirrors auto-round 0.15,
// auto_round/export/export_to_autoround/export.py).
//
// A dialect of configuration over the tensors of GPTQ (formats/gptq/linear.h) or AWQ
// (formats/awq/reader.cpp): `packing_format` says which of them, and how zero points are stored
// (formats/auto_round/config.h). Read are integer weights of 2, 3, 4 and 8 bits, with bits, groups
// and symmetry by layer. Scales may be negative: symmetric AutoRound uses the full range of codes,
// about half of all scales are.
//
//     N = 1, K = 8, codes 0 … 7, z = 8: qweight 76543210; qzeros' fields are 7 under
//     auto_round:auto_gptq, and 8 under auto_round
//
// Exports to plain GPTQ and AWQ (`provider: auto-round`) are read as those. The tensors decide what
// is quantized and in how many bits; where the config says otherwise, it is a finding.

#include "prepack/formats/auto_round/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/container/json_fields.h"
#include "prepack/container/model_config.h"
#include "prepack/formats/auto_round/config.h"
#include "prepack/formats/awq/module.h"
#include "prepack/formats/config_keys.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/gptq/zeros.h"
#include "prepack/formats/module_match.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/readers.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/model/module_name.h"

namespace prepack::auto_round {

namespace {

constexpr std::string_view kAutoRoundOwnKeys =
    "backend damp_percent dequantize desc_act extra_config packing_format static_groups "
    "true_sequential modules_to_not_convert";

}  // namespace

constinit const FormatKeys kKeys = {.known = {kAutoRoundOwnKeys, kAutoRoundKeys}};

namespace {

// The first release whose calibration-free exports store what their label says.
constexpr VersionNumber kHonestSince = {0, 16};

gptq::Zeros Labelled(const Config& config) {
  return config.packing.packing == Packing::kGptqMinusOne ? gptq::Zeros::kMinusOne
                                                          : gptq::Zeros::kStored;
}

// All modules that can be read. What is wrong with the others is found out when they are described.
gptq::ZeroSample SampleModel(const Checkpoint& checkpoint, std::span<const ModuleTensors> modules,
                             const Config& config, const Matcher& matcher) {
  gptq::ZeroSample sample;
  FindingTally ignored;
  for (const ModuleTensors& module : modules) {
    if (module.Find("qweight") == nullptr) continue;
    const Result<gptq::Settings> settings =
        GptqSettings(checkpoint, module, config, matcher.SchemeOf(module.name), Labelled(config));
    if (!settings.ok()) continue;
    const Result<gptq::Module> read = gptq::DescribeModule(checkpoint, module, *settings, ignored);
    if (!read.ok()) continue;
    const Result<gptq::ZeroSample> one =
        gptq::SampleZeros(checkpoint, read->shape, read->order, *settings);
    if (one.ok()) sample += *one;
  }
  return sample;
}

}  // namespace

ZeroChoice ChooseZeros(const Checkpoint& checkpoint, std::span<const ModuleTensors> modules,
                       const Config& config, const Matcher& matcher) {
  ZeroChoice chosen{.zeros = Labelled(config), .contradicts = ""};
  // No export says "auto_round:gptqmodel" of itself: that is how a user says that z is stored.
  if (!config.model_free || config.packing.name != "auto_round") return chosen;
  const gptq::ZeroSample sample = SampleModel(checkpoint, modules, config, matcher);
  if (const std::optional<gptq::Zeros> told = gptq::ConventionOf(sample)) {
    if (*told == gptq::Zeros::kStored) return chosen;
    chosen.contradicts = gptq::DescribeSample(sample);
  } else if (config.version && config.version->IsBefore(kHonestSince)) {
    chosen.contradicts =
        fmt::format("AutoRound {} stored them that way", ShowVersion(*config.version));
  } else {
    return chosen;
  }
  chosen.zeros = gptq::Zeros::kMinusOne;
  return chosen;
}

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

Status CheckShape(const Checkpoint& checkpoint, const ModuleTensors& module, const Config& config) {
  const Shape shape = ShapeOf(module);
  const bool awq = config.packing.packing == Packing::kAwq;
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
                         "AutoRound exports with quantized activations are not supported")
          .Hint("Quantize only the weights (for example scheme W4A16)")
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
  PREPACK_TRY(checkpoint.Read(*qzeros, 0, row));
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
  const Json& model = LanguageConfig(config);
  const auto field = [&](std::string_view key) -> std::optional<uint64_t> {
    const Result<std::optional<int64_t>> value = OptionalInt(model, key, "config.json");
    if (!value.ok() || !*value || **value <= 0) return std::nullopt;
    return static_cast<uint64_t>(**value);
  };
  const std::string_view last = LastPart(module);
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
               fmt::format("the module stores {} input channels, but the model has {}: the export "
                           "is padded, and prepack drops the extra ones",
                           linear->k(), *k));
  return TrimInputs(std::move(linear), *k);
}

Result<std::unique_ptr<QuantizedLinear>> DescribeAwq(const Checkpoint& checkpoint,
                                                     const ModuleTensors& module,
                                                     const Config& config,
                                                     const LayerScheme& scheme,
                                                     FindingTally& findings) {
  awq::Settings settings;
  settings.where = config.where;
  settings.bits = scheme.quantized() ? static_cast<uint32_t>(scheme.bits) : 4;
  settings.group_size = scheme.group_size;
  // Zero points that are stored are always right; without a word about them, look.
  settings.zero_point = !scheme.sym.value_or(module.Find("qzeros") == nullptr);
  settings.version = "gemm";
  return awq::DescribeModule(checkpoint, module, settings, findings);
}

Result<std::unique_ptr<QuantizedLinear>> DescribeGptq(const Checkpoint& checkpoint,
                                                      const ModuleTensors& module,
                                                      const Config& config,
                                                      const LayerScheme& scheme, gptq::Zeros zeros,
                                                      gptq::ZeroSample& sample,
                                                      FindingTally& findings) {
  PREPACK_TRY_ASSIGN(const gptq::Settings settings,
                     GptqSettings(checkpoint, module, config, scheme, zeros));
  PREPACK_TRY_ASSIGN(gptq::Module read,
                     gptq::DescribeModule(checkpoint, module, settings, findings));
  PREPACK_TRY_ASSIGN(const gptq::ZeroSample own,
                     gptq::SampleZeros(checkpoint, read.shape, read.order, settings));
  PREPACK_TRY(gptq::CheckZeros(own, zeros, module.name, kZerosHint, findings));
  sample += own;
  if (!config.model_free) return std::move(read.linear);
  return Trim(checkpoint, std::move(read.linear), findings);
}

}  // namespace

Result<gptq::Settings> GptqSettings(const Checkpoint& checkpoint, const ModuleTensors& module,
                                    const Config& config, const LayerScheme& scheme,
                                    gptq::Zeros zeros) {
  gptq::Settings settings;
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
  PREPACK_TRY_ASSIGN(const bool symmetric, LooksSymmetric(checkpoint, module, settings.bits));
  settings.symmetric = symmetric;
  return settings;
}

Result<std::unique_ptr<QuantizedLinear>> DescribeModule(const Checkpoint& checkpoint,
                                                        const ModuleTensors& module,
                                                        const Config& config,
                                                        const LayerScheme& scheme,
                                                        gptq::Zeros zeros, gptq::ZeroSample& sample,
                                                        FindingTally& findings) {
  PREPACK_TRY(CheckTensors(checkpoint, module));
  PREPACK_TRY(CheckShape(checkpoint, module, config));
  return config.packing.packing == Packing::kAwq
             ? DescribeAwq(checkpoint, module, config, scheme, findings)
             : DescribeGptq(checkpoint, module, config, scheme, zeros, sample, findings);
}

Status CheckPlain(const Checkpoint& checkpoint, const ModuleTensors& module) {
  if (const StoredTensor* qzeros = module.Find("qzeros")) {
    return Malformed(checkpoint.Where(*qzeros), "qweight of the module is missing")
        .Hint("A shard is missing, or the index is wrong")
        .Id(FindingId("tensor-orphan"));
  }
  // MX, NVFP4 and FP8 weights, and Apple's: the config may not say so.
  for (const std::string_view suffix :
       {"weight_packed", "weight_scale", "weight_scale_inv", "biases"}) {
    if (const StoredTensor* tensor = module.Find(suffix)) {
      return Unsupported(checkpoint.Where(*tensor), "the weights are not plain integers")
          .Hint("Quantize the model to integers (for example scheme W4A16)")
          .Id(FindingId("autoround-scheme"));
    }
  }
  return CheckTensors(checkpoint, module);
}

namespace {

// What the config says of a quantized module. Where it says that there is nothing quantized, the
// tensors win: the scheme is then that of the whole model.
LayerScheme SchemeOf(const Config& config, const Matcher& matcher, const ModuleTensors& module,
                     FindingTally& findings) {
  const Entry* entry = matcher.EntryOf(module.name);
  LayerScheme scheme = matcher.SchemeOf(module.name);
  if (!scheme.quantized()) {
    findings.Add("module-ignored-but-quantized", module.name,
                 fmt::format("{} says {} bits, but the module is quantized",
                             entry == nullptr ? config.where : entry->where, scheme.bits));
  } else if (entry == nullptr && IsOutputHead(module.name)) {
    findings.Add("head-undeclared", module.name,
                 "the output head is quantized, but extra_config does not name it");
  } else if (entry == nullptr && !matcher.InBlocks(module.name)) {
    findings.Add("module-ignored-but-quantized", module.name,
                 "the module is outside the blocks that the config names, but it is quantized");
  }
  return scheme;
}

// A layer in floating point that the config wants quantized. Routers, heads and embeddings usually
// are, and are not worth a word.
bool IsTargetedFloat(const Matcher& matcher, const ModuleTensors& module) {
  const StoredTensor* weight = module.Find("weight");
  if (weight == nullptr || weight->shape.size() != 2 || !module.name.ends_with("_proj") ||
      !matcher.InBlocks(module.name)) {
    return false;
  }
  return matcher.SchemeOf(module.name).quantized();
}

// A head that extra_config quantizes, and that AutoRound left as it was.
void ReportPlainHead(const Matcher& matcher, const ModuleTensors& module, FindingTally& findings) {
  const Entry* entry = matcher.EntryOf(module.name);
  const StoredTensor* weight = module.Find("weight");
  if (entry == nullptr || weight == nullptr || !IsOutputHead(module.name)) return;
  LayerScheme scheme = matcher.SchemeOf(module.name);
  if (!scheme.quantized()) return;
  findings.Add("head-undeclared", module.name,
               fmt::format("{} says {} bits, but the output head is stored as {}", entry->where,
                           scheme.bits, DTypeName(weight->dtype)));
}

// AutoRound quantizes what the model class never loads, layer or not: the copy of the embedding
// that some multi-token prediction layers bring. The model's own embedding lies beside it.
bool IsCopyOfEmbedding(const ModuleTensors& module, std::span<const ModuleTensors> modules) {
  if (ClassOfModule(module.name) != ModuleClass::kEmbedding) return false;
  return std::ranges::any_of(modules, [&](const ModuleTensors& other) {
    const StoredTensor* weight = other.Find("weight");
    return weight != nullptr && weight->shape.size() == 2 &&
           LastPart(other.name) == LastPart(module.name);
  });
}

}  // namespace

Status Read(const ReadContext& context, QuantizedModel& model) {
  const auto& [checkpoint, configs, modules, findings] = context;
  PREPACK_TRY_ASSIGN(const Config config, ParseConfig(configs, findings));
  PREPACK_TRY_ASSIGN(const Matcher matcher, Matcher::Make(config, modules, findings));
  const ZeroChoice zeros = ChooseZeros(checkpoint, modules, config, matcher);
  if (!zeros.contradicts.empty()) {
    findings.Add(
        "autoround-model-free-zeros", FieldPath(config.where, "packing_format"),
        fmt::format(
            "the calibration-free export stores z - 1, although packing_format says z ({}); "
            "prepack uses z - 1 (if z is right, set packing_format to \"auto_round:gptqmodel\")",
            zeros.contradicts));
  }
  gptq::ZeroSample sample;
  PlainModules plain;
  for (const ModuleTensors& module : modules) {
    if (module.Find("qweight") == nullptr) {
      model.AddError(CheckPlain(checkpoint, module));
      if (IsTargetedFloat(matcher, module)) {
        plain.Add(module.name,
                  "the config quantizes the module, but its weight is in floating point");
      }
      ReportPlainHead(matcher, module, findings);
      continue;
    }
    if (IsCopyOfEmbedding(module, modules)) {
      model.kept.emplace_back(module.name);
      findings.Add("embedding-copy-quantized", module.name,
                   "a quantized copy of the embedding, which the model does not use; prepack "
                   "leaves it as stored");
      continue;
    }
    const LayerScheme scheme = SchemeOf(config, matcher, module, findings);
    model.Add(DescribeModule(checkpoint, module, config, scheme, zeros.zeros, sample, findings));
  }
  PREPACK_TRY(RequireModules(model, config.where, "tensors named MODULE.qweight"));
  PREPACK_TRY(gptq::CheckZeros(sample, zeros.zeros, config.where, kZerosHint, findings));
  plain.Report(model, findings);
  return {};
}

}  // namespace prepack::auto_round
