#include "prepack/formats/modelopt/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/json_fields.h"
#include "prepack/formats/module_match.h"

namespace prepack {
namespace {

constexpr uint64_t kBlock = 128;
constexpr size_t kMaxLayers = 1'000'000;

struct KnownAlgo {
  std::string_view name;  // in lower case
  ModelOptAlgo algo;
};

constexpr auto kAlgos = std::to_array<KnownAlgo>({
    {"fp8", ModelOptAlgo::kFp8},
    {"fp8_per_channel_per_token", ModelOptAlgo::kPerChannel},
    {"fp8_pb_wo", ModelOptAlgo::kBlocksWeightOnly},
    {"fp8_block_scales", ModelOptAlgo::kBlocks},
    {"unquantized", ModelOptAlgo::kUnquantized},
    {"mixed_precision", ModelOptAlgo::kMixed},
    {"nvfp4", ModelOptAlgo::kUnread},
    {"w4a16_nvfp4", ModelOptAlgo::kUnread},
    {"nvfp4_awq", ModelOptAlgo::kUnread},
    {"nvfp4_svd", ModelOptAlgo::kUnread},
    {"w4a8_nvfp4_fp8", ModelOptAlgo::kUnread},
    {"mxfp4", ModelOptAlgo::kUnread},
    {"w4a8_mxfp4_fp8", ModelOptAlgo::kUnread},
    {"mxfp8", ModelOptAlgo::kUnread},
    {"fp8_pb_real", ModelOptAlgo::kUnread},
    {"w4a16_awq", ModelOptAlgo::kUnread},
    {"w4a8_awq", ModelOptAlgo::kUnread},
    {"w8a16", ModelOptAlgo::kUnread},
    {"w8a8_sq_per_channel", ModelOptAlgo::kUnread},
});

Result<ModelOptEntry> ParseAlgo(const Json& fields, std::string_view where) {
  PREPACK_TRY_ASSIGN(const std::optional<std::string> name,
                     OptionalString(fields, "quant_algo", where));
  if (!name) {
    return Malformed(FieldPath(where, "quant_algo"), "the algorithm is missing")
        .Expected("FP8, MIXED_PRECISION or another of ModelOpt's names")
        .Id(FindingId("config-field-invalid"));
  }
  // The writer spells those in lower case that its own table of names lacks.
  const auto* const known = std::ranges::find(kAlgos, LowerCase(*name), &KnownAlgo::name);
  if (known != kAlgos.end()) return ModelOptEntry{.algo = known->algo, .name = *name};
  return UnknownKeyword(where, "quant_algo", *name,
                        "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, FP8_BLOCK_SCALES or "
                        "MIXED_PRECISION");
}

bool IsBlocks(ModelOptAlgo algo) {
  return algo == ModelOptAlgo::kBlocksWeightOnly || algo == ModelOptAlgo::kBlocks;
}

// Blocks have one size, which the config need not say.
Status CheckGroupSize(const ModelOptEntry& entry, const Json& fields, std::string_view where) {
  if (!IsBlocks(entry.algo)) return {};
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> size, OptionalInt(fields, "group_size", where));
  if (size.value_or(kBlock) == kBlock) return {};
  return Unsupported(FieldPath(where, "group_size"), "FP8 blocks of another size are not supported")
      .Found(std::to_string(*size))
      .Expected(std::to_string(kBlock))
      .Id(FindingId("scheme-unsupported"));
}

// The entry of a module.
Result<ModelOptEntry> ParseLayer(const Json& fields, const std::string& where) {
  PREPACK_TRY(RequireObject(fields, where));
  PREPACK_TRY_ASSIGN(ModelOptEntry entry, ParseAlgo(fields, where));
  if (entry.algo == ModelOptAlgo::kMixed) {
    return UnknownKeyword(where, "quant_algo", entry.name, "the algorithm of one module");
  }
  if (entry.algo == ModelOptAlgo::kUnread) return entry;
  static constexpr std::array<std::string_view, 2> kKeys = {"quant_algo", "group_size"};
  PREPACK_TRY(RefuseUnknownKeys(fields, kKeys, where));
  PREPACK_TRY(CheckGroupSize(entry, fields, where));
  return entry;
}

Status ParseLayers(const Json& fields, ModelOptConfig& config) {
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
    PREPACK_TRY_ASSIGN(ModelOptEntry parsed, ParseLayer(entry, FieldPath(where, Printable(name))));
    config.layers.emplace(name, std::move(parsed));
  }
  return {};
}

Status ParseExcluded(const Json& fields, ModelOptConfig& config) {
  for (const std::string_view key : {"exclude_modules", "ignore"}) {
    const Json* list = JsonMember(fields, key);
    if (list == nullptr) continue;
    const bool strings = list->is_array() && std::ranges::all_of(*list, [](const Json& entry) {
                           return entry.is_string();
                         });
    if (!strings) {
      return Malformed(FieldPath(config.where, key), "the field has the wrong type")
          .Found(ShowJson(*list))
          .Expected("a list of strings")
          .Id(FindingId("config-field-invalid"));
    }
    for (const Json& name : *list) config.excluded.push_back(name.get<std::string>());
  }
  return {};
}

Result<ModelOptConfig> ParseModelOptConfig(const QuantizationConfig& declared) {
  const Json& fields = *declared.fields;
  ModelOptConfig config;
  config.where = declared.where;
  PREPACK_TRY_ASSIGN(config.all, ParseAlgo(fields, declared.where));
  PREPACK_TRY(CheckGroupSize(config.all, fields, declared.where));
  if (config.all.algo == ModelOptAlgo::kMixed) {
    PREPACK_TRY(ParseLayers(fields, config));
  }
  PREPACK_TRY(ParseExcluded(fields, config));
  if (config.all.algo != ModelOptAlgo::kUnread) return config;
  return Unsupported(
             FieldPath(declared.where, "quant_algo"),
             fmt::format("ModelOpt's {} weights are not supported", Printable(config.all.name)))
      .Expected("FP8 or MIXED_PRECISION")
      .Hint("Save the model in 16 bits and quantize that to integers or FP8")
      .Id(FindingId("scheme-unsupported"));
}

// Lists of what is not quantized may differ: the tensors win over them anyway.
Status CompareModelOptCopy(const ModelOptConfig& first, const ModelOptConfig& copy) {
  const auto conflict = [&](std::string_view key, const std::string& found,
                            std::string_view expected) {
    return Malformed(FieldPath(copy.where, key), "two copies of the quantization config disagree")
        .Found(found)
        .Expected(fmt::format("{}, as {} says", expected, first.where))
        .Hint("Make them equal: readers differ in which copy they use")
        .Id(FindingId("config-conflict"));
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

Fp8Meaning ModelOptEntry::Meaning() const {
  Fp8Meaning meaning;
  ActivationScheme& activations = meaning.activations;
  if (IsBlocks(algo)) meaning.block = {kBlock, kBlock};
  if (algo != ModelOptAlgo::kBlocksWeightOnly) {
    activations.type = ActivationType::kFloat;
    activations.bits = 8;
  }
  if (algo == ModelOptAlgo::kFp8) {
    meaning.granularity = Granularity::kTensor;
    activations.dynamic = false;
    activations.granularity = ActivationGranularity::kTensor;
  } else if (algo == ModelOptAlgo::kPerChannel) {
    meaning.granularity = Granularity::kChannel;
  } else if (algo == ModelOptAlgo::kBlocks) {
    activations.granularity = ActivationGranularity::kGroup;
    activations.group_size = kBlock;
  }
  return meaning;
}

bool ModelOptConfig::Excludes(std::string_view module) const {
  return std::ranges::any_of(
      excluded, [&](const std::string& pattern) { return MatchesWildcard(pattern, module); });
}

const ModelOptEntry* ModelOptConfig::Find(std::string_view module) const {
  if (all.algo != ModelOptAlgo::kMixed) return &all;
  // A key may name a parent: one entry for all experts of a layer.
  for (std::string_view name = module;;) {
    if (const auto found = layers.find(name); found != layers.end()) return &found->second;
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return nullptr;
    name = name.substr(0, dot);
  }
}

Result<ModelOptConfig> ParseModelOptConfigs(const std::vector<QuantizationConfig>& declared) {
  Result<ModelOptConfig> first = ParseModelOptConfig(declared.front());
  if (!first.ok()) return first;
  for (size_t i = 1; i < declared.size(); ++i) {
    PREPACK_TRY_ASSIGN(const ModelOptConfig copy, ParseModelOptConfig(declared[i]));
    PREPACK_TRY(CompareModelOptCopy(*first, copy));
  }
  return first;
}

}  // namespace prepack
