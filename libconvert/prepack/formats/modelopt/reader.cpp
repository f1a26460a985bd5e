// Checkpoints of NVIDIA's ModelOpt in FP8 (mirrors nvidia-modelopt 0.47, torch/export, and vLLM
// 0.33, layers/quantization/modelopt.py).
//
//     MODULE.weight        F8_E4M3 [N, K]
//     MODULE.weight_scale  F32, multiplies
//       []                     quant_algo FP8, with MODULE.input_scale F32 []
//       [N]                    FP8_PER_CHANNEL_PER_TOKEN
//       [⌈N/128⌉, 1, ⌈K/128⌉, 1]  FP8_PB_WO; [] where the matrix is one block
//     MODULE.weight_scale_inv  F32 [⌈N/128⌉, ⌈K/128⌉], multiplies: FP8_BLOCK_SCALES
//
// NVFP4, W4A16_NVFP4 and MXFP4 are two codes in a byte (fp4/module.h, also for stacked experts),
// and MXFP8 has scales that are exponents, U8 [N, K/32].
//
// MIXED_PRECISION says for each module, or for what it lies in, which of these it is; what is not
// listed is not quantized. The names of algorithms are in any case: the writer itself spells some
// of them in lower case. k_scale and v_scale, of the key-value cache, lie beside the weights and
// pass through.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/config_keys.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/fp4/module.h"
#include "prepack/formats/fp8/module.h"
#include "prepack/formats/module_match.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/readers.h"

namespace prepack::modelopt {

namespace {

// nvidia-modelopt 0.47 (convert_hf_quant_config_format) in config.json, and in the file of its own.
constexpr std::string_view kModelOptKeys =
    "config_groups exclude_modules group_size ignore kv_cache_quant_algo kv_cache_scheme producer "
    "quant_algo quantized_layers";

}  // namespace

constinit const FormatKeys kKeys = {.known = {kModelOptKeys}};

// What `quant_algo` says.
enum class Algo : uint8_t {
  kFp8,               // one scale per module, static activations
  kPerChannel,        // one scale per channel, activations per token
  kBlocksWeightOnly,  // blocks of 128 × 128
  kBlocks,            // the same, and activations in groups of 128
  kNvfp4,             // FP4 below a global scale, activations of the same kind
  kNvfp4WeightOnly,
  kMxfp4,
  kMxfp8,
  kUnquantized,
  kMixed,   // the whole model: each module says it for itself
  kUnread,  // known, and not read
};

struct Entry {
  Algo algo = Algo::kUnquantized;
  std::string name;  // as the config spells it

  // What it says of a module's weights; `algo` is one of FP8's, or one of FP4's.
  fp8::Meaning Meaning() const;
  fp4::Meaning Fp4Meaning() const;
  bool IsFp4() const {
    return algo == Algo::kNvfp4 || algo == Algo::kNvfp4WeightOnly || algo == Algo::kMxfp4;
  }
};

struct Config {
  std::string where;
  Entry all;
  std::map<std::string, Entry, std::less<>> layers;  // of kMixed: modules, or parents
  std::vector<std::string> excluded;                 // names and wildcards

  // Does the config want the module left as it is?
  bool Excludes(std::string_view module) const;
  // What it says of the module; nullptr where it says nothing.
  const Entry* Find(std::string_view module) const;
};

// The config, which all copies of it agree on. A model whose only algorithm is not read is
// kUnsupported.
Result<Config> ParseConfigs(std::span<const QuantizationConfig> declared);

namespace {

constexpr uint64_t kBlock = 128;
constexpr size_t kMaxLayers = 1'000'000;

struct KnownAlgo {
  std::string_view name;  // in lower case
  Algo algo;
};

constexpr auto kAlgos = std::to_array<KnownAlgo>({
    {"fp8", Algo::kFp8},
    {"fp8_per_channel_per_token", Algo::kPerChannel},
    {"fp8_pb_wo", Algo::kBlocksWeightOnly},
    {"fp8_block_scales", Algo::kBlocks},
    {"unquantized", Algo::kUnquantized},
    {"mixed_precision", Algo::kMixed},
    {"nvfp4", Algo::kNvfp4},
    {"w4a16_nvfp4", Algo::kNvfp4WeightOnly},
    {"mxfp4", Algo::kMxfp4},
    {"mxfp8", Algo::kMxfp8},
    {"nvfp4_awq", Algo::kUnread},
    {"nvfp4_svd", Algo::kUnread},
    {"w4a8_nvfp4_fp8", Algo::kUnread},
    {"w4a8_mxfp4_fp8", Algo::kUnread},
    {"fp8_pb_real", Algo::kUnread},
    {"w4a16_awq", Algo::kUnread},
    {"w4a8_awq", Algo::kUnread},
    {"w8a16", Algo::kUnread},
    {"w8a8_sq_per_channel", Algo::kUnread},
});

Result<Entry> ParseAlgo(const Json& fields, std::string_view where) {
  PREPACK_TRY_ASSIGN(const std::optional<std::string> name,
                     OptionalString(fields, "quant_algo", where));
  if (!name) {
    return Malformed(FieldPath(where, "quant_algo"), "the algorithm is missing")
        .Expected("FP8, MIXED_PRECISION or another of ModelOpt's names")
        .Id(FindingId("config-field-invalid"));
  }
  // The writer spells those in lower case that its own table of names lacks.
  const auto* const known = std::ranges::find(kAlgos, LowerCase(*name), &KnownAlgo::name);
  if (known != kAlgos.end()) return Entry{.algo = known->algo, .name = *name};
  return UnknownKeyword(where, "quant_algo", *name,
                        "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, FP8_BLOCK_SCALES, NVFP4, "
                        "W4A16_NVFP4, MXFP4, MXFP8 or MIXED_PRECISION");
}

bool IsBlocks(Algo algo) {
  return algo == Algo::kBlocksWeightOnly || algo == Algo::kBlocks;
}

// The only size of groups or blocks that an algorithm has; 0 if it has none.
uint64_t SizeOf(const Entry& entry) {
  if (IsBlocks(entry.algo)) return kBlock;
  if (entry.algo == Algo::kMxfp8) return fp4::kMxGroup;
  return entry.IsFp4() ? entry.Fp4Meaning().group_size() : 0;
}

// Blocks and groups have one size, which the config need not say.
Status CheckGroupSize(const Entry& entry, const Json& fields, std::string_view where) {
  const auto only = static_cast<int64_t>(SizeOf(entry));
  if (only == 0) return {};
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> size, OptionalInt(fields, "group_size", where));
  if (size.value_or(only) == only) return {};
  return Unsupported(FieldPath(where, "group_size"),
                     IsBlocks(entry.algo)
                         ? "FP8 blocks of another size are not supported"
                         : fmt::format("{} with other groups is not supported", entry.name))
      .Found(std::to_string(*size))
      .Expected(std::to_string(only))
      .Id(FindingId("scheme-unsupported"));
}

// The entry of a module.
Result<Entry> ParseLayer(const Json& fields, const std::string& where) {
  PREPACK_TRY(RequireObject(fields, where));
  PREPACK_TRY_ASSIGN(Entry entry, ParseAlgo(fields, where));
  if (entry.algo == Algo::kMixed) {
    return UnknownKeyword(where, "quant_algo", entry.name, "the algorithm of one module");
  }
  if (entry.algo == Algo::kUnread) return entry;
  static constexpr std::array<std::string_view, 2> kKeys = {"quant_algo", "group_size"};
  PREPACK_TRY(RefuseUnknownKeys(fields, kKeys, where));
  PREPACK_TRY(CheckGroupSize(entry, fields, where));
  return entry;
}

Status ParseLayers(const Json& fields, Config& config) {
  const Json* layers = JsonMember(fields, "quantized_layers");
  const std::string where = FieldPath(config.where, "quantized_layers");
  if (layers == nullptr) {
    return Malformed(where, "nothing says which modules are quantized or how")
        .Expected("an object with an entry for each")
        .Id(FindingId("config-field-invalid"));
  }
  PREPACK_TRY(RequireObject(*layers, where));
  if (layers->size() > kMaxLayers) {
    return Unsupported(where, "too many entries")
        .Found(std::to_string(layers->size()))
        .Expected(fmt::format("at most {}", kMaxLayers))
        .Id(FindingId("config-too-large"));
  }
  for (const auto& [name, entry] : layers->items()) {
    PREPACK_TRY_ASSIGN(Entry parsed, ParseLayer(entry, FieldPath(where, Printable(name))));
    config.layers.emplace(name, std::move(parsed));
  }
  return {};
}

Result<Config> ParseModelOptConfig(const QuantizationConfig& declared) {
  const Json& fields = *declared.fields;
  Config config;
  config.where = declared.where;
  PREPACK_TRY_ASSIGN(config.all, ParseAlgo(fields, declared.where));
  PREPACK_TRY(CheckGroupSize(config.all, fields, declared.where));
  if (config.all.algo == Algo::kMixed) {
    PREPACK_TRY(ParseLayers(fields, config));
  }
  PREPACK_TRY_ASSIGN(config.excluded,
                     OptionalStrings(fields, {"exclude_modules", "ignore"}, config.where));
  if (config.all.algo != Algo::kUnread) return config;
  return Unsupported(
             FieldPath(declared.where, "quant_algo"),
             fmt::format("ModelOpt's {} weights are not supported", Printable(config.all.name)))
      .Expected("FP8, NVFP4, MXFP4, MXFP8 or MIXED_PRECISION")
      .Hint("Save the model in 16 bits and quantize that to integers or FP8")
      .Id(FindingId("scheme-unsupported"));
}

// Lists of what is not quantized may differ: the tensors win over them anyway.
Status CompareModelOptCopy(const Config& first, const Config& copy) {
  const auto conflict = [&](std::string_view key, const std::string& found,
                            std::string_view expected) {
    return CopiesDisagree(FieldPath(copy.where, key), found, expected, first.where);
  };
  if (first.all.algo != copy.all.algo) {
    return conflict("quant_algo", copy.all.name, first.all.name);
  }
  for (const auto& [name, entry] : first.layers) {
    const auto other = copy.layers.find(name);
    const bool same = other != copy.layers.end() && other->second.algo == entry.algo;
    if (same) continue;
    return conflict(fmt::format("quantized_layers.{}", Printable(name)),
                    other == copy.layers.end() ? "absent" : other->second.name, entry.name);
  }
  if (first.layers.size() == copy.layers.size()) return {};
  return conflict("quantized_layers", fmt::format("{} entries", copy.layers.size()),
                  std::to_string(first.layers.size()));
}

}  // namespace

fp4::Meaning Entry::Fp4Meaning() const {
  fp4::Meaning meaning;
  meaning.nvfp4 = algo != Algo::kMxfp4;
  if (algo != Algo::kNvfp4WeightOnly) {
    meaning.activations = fp4::FourBitActivations(meaning.group_size());
  }
  return meaning;
}

fp8::Meaning Entry::Meaning() const {
  fp8::Meaning meaning;
  ActivationScheme& activations = meaning.activations;
  if (IsBlocks(algo)) meaning.block = {kBlock, kBlock};
  if (algo != Algo::kBlocksWeightOnly) {
    activations.type = ActivationType::kFloat;
    activations.bits = 8;
  }
  if (algo == Algo::kFp8) {
    meaning.granularity = Granularity::kTensor;
    activations.dynamic = false;
    activations.granularity = ActivationGranularity::kTensor;
  } else if (algo == Algo::kPerChannel) {
    meaning.granularity = Granularity::kChannel;
  } else if (algo == Algo::kMxfp8) {
    meaning.granularity = Granularity::kGroup;
    meaning.group_size = fp4::kMxGroup;
    meaning.form = ScaleForm::kExponent;
    activations.granularity = ActivationGranularity::kGroup;
    activations.group_size = fp4::kMxGroup;
  } else if (algo == Algo::kBlocks) {
    activations.granularity = ActivationGranularity::kGroup;
    activations.group_size = kBlock;
  }
  return meaning;
}

bool Config::Excludes(std::string_view module) const {
  return std::ranges::any_of(
      excluded, [&](const std::string& pattern) { return MatchesWildcard(pattern, module); });
}

const Entry* Config::Find(std::string_view module) const {
  if (all.algo != Algo::kMixed) return &all;
  // A key may name a parent: one entry for all experts of a layer.
  for (std::string_view name = module;;) {
    if (const auto found = layers.find(name); found != layers.end()) return &found->second;
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return nullptr;
    name = name.substr(0, dot);
  }
}

Result<Config> ParseConfigs(std::span<const QuantizationConfig> declared) {
  Result<Config> first = ParseModelOptConfig(declared.front());
  if (!first.ok()) return first;
  for (size_t i = 1; i < declared.size(); ++i) {
    PREPACK_TRY_ASSIGN(const Config copy, ParseModelOptConfig(declared[i]));
    PREPACK_TRY(CompareModelOptCopy(*first, copy));
  }
  return first;
}

namespace {

const StoredTensor* AnyScale(const ModuleTensors& module) {
  const StoredTensor* scale = module.Find("weight_scale");
  return scale != nullptr ? scale : module.Find("weight_scale_inv");
}

// FP8, or codes of another kind beside their scales.
bool IsModelOptQuantized(const ModuleTensors& module, const StoredTensor& weight) {
  return fp8::IsFloat8(weight.dtype) ||
         (weight.dtype == DType::kU8 && AnyScale(module) != nullptr) ||
         (weight.dtype == DType::kI8 && AnyScale(module) != nullptr);
}

// A weight in floating point that the config wants quantized, by the name of a linear layer.
bool IsTargetedPlain(const Config& config, const ModuleTensors& module,
                     const StoredTensor& weight) {
  if (weight.shape.size() != 2 || !module.name.ends_with("_proj")) return false;
  const Entry* entry = config.Find(module.name);
  return entry != nullptr && entry->algo != Algo::kUnquantized && !config.Excludes(module.name);
}

// What else changes the outputs of the module.
Status RefuseCorrections(const Checkpoint& checkpoint, const ModuleTensors& module) {
  for (const std::string_view name : {"pre_quant_scale", "svdquant_lora_a", "svdquant_lora_b"}) {
    const StoredTensor* tensor = module.Find(name);
    if (tensor == nullptr) continue;
    return Unsupported(
               checkpoint.Where(*tensor),
               "the runtime would have to do more than multiply with the weights of this module")
        .Hint("Quantize the model with an algorithm that stores weights and scales only")
        .Id(FindingId("storage-unsupported"));
  }
  return {};
}

Result<const StoredTensor*> FindModelOptScale(const Checkpoint& checkpoint,
                                              const ModuleTensors& module,
                                              const StoredTensor& weight) {
  const StoredTensor* scale = module.Find("weight_scale");
  const StoredTensor* inverse = module.Find("weight_scale_inv");
  if (scale != nullptr && inverse != nullptr) {
    return Malformed(checkpoint.Where(*inverse),
                     "the module has both weight_scale_inv and weight_scale")
        .Hint("Only one of them can be the scale; save the model again")
        .Id(FindingId("weight-twice"));
  }
  if (scale != nullptr) return scale;
  if (inverse != nullptr) return inverse;
  return fp8::MissingScale(checkpoint, weight, fmt::format("{}.weight_scale", module.name));
}

Result<std::unique_ptr<QuantizedLinear>> DescribeModelOpt(const Checkpoint& checkpoint,
                                                          const Config& config,
                                                          const ModuleTensors& module,
                                                          const StoredTensor& weight) {
  PREPACK_TRY(CheckModuleName(module.name));
  const Entry* entry = config.Find(module.name);
  if (entry == nullptr) {
    return Malformed(module.name, "the module is quantized, but quantized_layers does not name it")
        .Expected(fmt::format("an entry in {}.quantized_layers", config.where))
        .Id(FindingId("module-without-group"));
  }
  if (entry->algo == Algo::kUnread) {
    return Unsupported(module.name, fmt::format("ModelOpt's {} weights are not supported",
                                                Printable(entry->name)))
        .Found(fmt::format("weight {} {}", DTypeName(weight.dtype), ShowShape(weight.shape)))
        .Hint("Save the model in 16 bits and quantize that to integers or FP8")
        .Id(FindingId("scheme-unsupported"));
  }
  if (entry->algo == Algo::kUnquantized) {
    return Malformed(module.name, "the config says that the module is not quantized, but it is")
        .Found(fmt::format("weight {}", DTypeName(weight.dtype)))
        .Hint("Check quant_algo of this module")
        .Id(FindingId("module-scheme-contradiction"));
  }
  PREPACK_TRY(RefuseCorrections(checkpoint, module));
  if (entry->IsFp4()) return fp4::DescribeModule(checkpoint, module, entry->Fp4Meaning());
  PREPACK_TRY(fp8::CheckWeight(checkpoint, module.name, weight));
  PREPACK_TRY_ASSIGN(const StoredTensor* scale, FindModelOptScale(checkpoint, module, weight));
  return fp8::DescribeModule(checkpoint, module.name, weight, *scale, module.Find("input_scale"),
                             entry->Meaning());
}

// The experts of all stacks in NVFP4 that lie in the module; whoever stacks others is refused
// later.
void DescribeStacks(const Checkpoint& checkpoint, const Config& config, const ModuleTensors& module,
                    QuantizedModel& model, FindingTally& findings) {
  for (const auto& [suffix, tensor] : module.tensors) {
    if (!fp4::IsNvfp4Stack(module, suffix, *tensor)) continue;
    const std::string name = fmt::format("{}.{}", module.name, suffix);
    const Entry* entry = config.Find(name);
    if (entry == nullptr || !entry->IsFp4() || !entry->Fp4Meaning().nvfp4) continue;
    if (config.Excludes(name)) {
      findings.Add("module-ignored-but-quantized", name,
                   "the config excludes the module, but it is quantized");
    }
    model.AddError(fp4::DescribeNvfp4Stack(checkpoint, module, suffix, entry->Fp4Meaning(), model));
  }
}

}  // namespace

Status Read(const ReadContext& context, QuantizedModel& model) {
  const auto& [checkpoint, configs, modules, findings] = context;
  PREPACK_TRY_ASSIGN(const Config config, ParseConfigs(configs));
  PlainModules plain;
  for (const ModuleTensors& module : modules) {
    DescribeStacks(checkpoint, config, module, model, findings);
    const StoredTensor* weight = module.Find("weight");
    if (weight == nullptr) continue;
    if (!IsModelOptQuantized(module, *weight)) {
      if (IsTargetedPlain(config, module, *weight)) {
        plain.Add(module.name, "the config does not exclude the module, but it is not quantized");
      }
      continue;
    }
    if (config.Excludes(module.name)) {
      findings.Add("module-ignored-but-quantized", module.name,
                   "the config excludes the module, but it is quantized");
    }
    model.Add(DescribeModelOpt(checkpoint, config, module, *weight));
  }
  PREPACK_TRY(
      RequireModules(model, config.where, "tensors named MODULE.weight of dtype F8_E4M3 or U8"));
  plain.Report(model, findings);
  return {};
}

}  // namespace prepack::modelopt
