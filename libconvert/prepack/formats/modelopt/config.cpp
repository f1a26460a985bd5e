#include "prepack/formats/modelopt/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_match.h"

namespace prepack::modelopt {
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
    {"nvfp4", Algo::kUnread},
    {"w4a16_nvfp4", Algo::kUnread},
    {"nvfp4_awq", Algo::kUnread},
    {"nvfp4_svd", Algo::kUnread},
    {"w4a8_nvfp4_fp8", Algo::kUnread},
    {"mxfp4", Algo::kUnread},
    {"w4a8_mxfp4_fp8", Algo::kUnread},
    {"mxfp8", Algo::kUnread},
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
                        "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, FP8_BLOCK_SCALES or "
                        "MIXED_PRECISION");
}

bool IsBlocks(Algo algo) {
  return algo == Algo::kBlocksWeightOnly || algo == Algo::kBlocks;
}

// Blocks have one size, which the config need not say.
Status CheckGroupSize(const Entry& entry, const Json& fields, std::string_view where) {
  if (!IsBlocks(entry.algo)) return {};
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> size, OptionalInt(fields, "group_size", where));
  if (size.value_or(kBlock) == kBlock) return {};
  return Unsupported(FieldPath(where, "group_size"), "FP8 blocks of another size are not supported")
      .Found(std::to_string(*size))
      .Expected(std::to_string(kBlock))
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

Status ParseExcluded(const Json& fields, Config& config) {
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

Result<Config> ParseModelOptConfig(const QuantizationConfig& declared) {
  const Json& fields = *declared.fields;
  Config config;
  config.where = declared.where;
  PREPACK_TRY_ASSIGN(config.all, ParseAlgo(fields, declared.where));
  PREPACK_TRY(CheckGroupSize(config.all, fields, declared.where));
  if (config.all.algo == Algo::kMixed) {
    PREPACK_TRY(ParseLayers(fields, config));
  }
  PREPACK_TRY(ParseExcluded(fields, config));
  if (config.all.algo != Algo::kUnread) return config;
  return Unsupported(
             FieldPath(declared.where, "quant_algo"),
             fmt::format("ModelOpt's {} weights are not supported", Printable(config.all.name)))
      .Expected("FP8 or MIXED_PRECISION")
      .Hint("Save the model in 16 bits and quantize that to integers or FP8")
      .Id(FindingId("scheme-unsupported"));
}

// Lists of what is not quantized may differ: the tensors win over them anyway.
Status CompareModelOptCopy(const Config& first, const Config& copy) {
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

}  // namespace prepack::modelopt
