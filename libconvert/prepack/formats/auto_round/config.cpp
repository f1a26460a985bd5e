#include "prepack/formats/auto_round/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/finding.h"

namespace prepack::auto_round {
namespace {

struct KnownPacking {
  std::string_view name;
  Packing packing;
};

constexpr std::array<KnownPacking, 7> kIntegerPackings = {{
    {"auto_round:auto_gptq", Packing::kGptqMinusOne},
    {"auto_round:gptq", Packing::kGptqMinusOne},
    {"auto", Packing::kGptqMinusOne},
    {"auto_round", Packing::kGptqStored},
    {"auto_round:gptqmodel", Packing::kGptqStored},
    {"auto_round:auto_awq", Packing::kAwq},
    {"auto_round:awq", Packing::kAwq},
}};

struct ForeignPacking {
  std::string_view name;
  std::string_view content;
  std::string_view hint;
};

constexpr std::string_view kIntegers = "Quantize the model to integers (for example scheme W4A16)";
constexpr std::array<ForeignPacking, 8> kForeignPackings = {{
    {"auto_round:llm_compressor", "MXFP or NVFP numbers", kIntegers},
    {"auto_round:llm_compressor_nvfp4_e5m3", "NVFP4 numbers", kIntegers},
    {"auto_round:fp8", "FP8 numbers", kIntegers},
    {"fp8", "FP8 numbers", kIntegers},
    {"auto_round:fp8_static", "FP8 numbers with static activations", kIntegers},
    {"auto_round:fake", "dequantized weights in floating point: the model is not quantized",
     "Export it with another format than \"fake\""},
    {"mlx", "arrays of Apple's MLX", kIntegers},
    {"auto_round:mlx", "arrays of Apple's MLX", kIntegers},
}};

Result<PackingChoice> ChoosePacking(const std::string& name, const std::string& where) {
  for (const KnownPacking& known : kIntegerPackings) {
    if (known.name == name) return PackingChoice{known.packing, name};
  }
  for (const ForeignPacking& foreign : kForeignPackings) {
    if (foreign.name != name) continue;
    return Unsupported(where, fmt::format("this packing_format stores {}", foreign.content))
        .Found(fmt::format("\"{}\"", name))
        .Hint(foreign.hint)
        .Id(FindingId("autoround-scheme"));
  }
  return Unsupported(where, "unknown packing_format")
      .Found(fmt::format("\"{}\"", Printable(name)))
      .Expected("auto_round, auto_round:auto_gptq, auto_round:gptqmodel or auto_round:auto_awq")
      .Id(FindingId("autoround-packing-unknown"));
}

// The backend of releases up to 0.4 described the tensors: "auto_round:gptq:exllamav2". Later it
// names a kernel to run: "gptq:marlin".
std::optional<PackingChoice> LegacyPacking(const std::string& backend) {
  if (!backend.starts_with("auto_")) return std::nullopt;
  const bool gptq = backend.find("gptq") != std::string::npos;
  const bool awq = backend.find("awq") != std::string::npos;
  return PackingChoice{gptq  ? Packing::kGptqMinusOne
                       : awq ? Packing::kAwq
                             : Packing::kGptqStored,
                       backend};
}

}  // namespace

Result<PackingChoice> ParsePacking(const QuantizationConfig& config, FindingTally& findings) {
  PREPACK_TRY_ASSIGN(const std::optional<std::string> format,
                     OptionalString(*config.fields, "packing_format", config.where));
  PREPACK_TRY_ASSIGN(const std::optional<std::string> backend,
                     OptionalString(*config.fields, "backend", config.where));
  const std::optional<PackingChoice> legacy =
      backend ? LegacyPacking(LowerCase(*backend)) : std::nullopt;
  if (!format) return legacy.value_or(PackingChoice{});
  Result<PackingChoice> chosen =
      ChoosePacking(LowerCase(*format), FieldPath(config.where, "packing_format"));
  if (chosen.ok() && legacy && legacy->packing != chosen->packing) {
    findings.Add("autoround-backend-differs", FieldPath(config.where, "backend"),
                 fmt::format("backend \"{}\" means other tensors than packing_format \"{}\"; "
                             "prepack trusts packing_format",
                             Printable(legacy->name), chosen->name));
  }
  return chosen;
}

Status CheckDataType(std::string_view data_type, std::string_view where) {
  const std::string name = LowerCase(data_type);
  const auto refuse = [&](std::string_view what, std::string_view hint = kIntegers) {
    return Unsupported(where, what)
        .Found(fmt::format("\"{}\"", Printable(name)))
        .Expected("\"int\"")
        .Hint(hint)
        .Id(FindingId("autoround-scheme"));
  };
  constexpr std::string_view kExport =
      "Export the model again with --format llm_compressor, which prepack reads";
  if (name.ends_with("_dq"))
    return refuse("double-quantized scales (GGUF schemes) are not supported");
  if (name == "int" || name == "int_sym" || name == "int_asym") return {};
  if (name.starts_with("mx_int")) return refuse("MXINT weights are not supported");
  if (name.starts_with("mx")) return refuse("MXFP weights are not supported", kExport);
  if (name.starts_with("nv")) {
    // nvfp4_v2 has scales in e5m3.
    return refuse("NVFP4 weights are not supported",
                  name.starts_with("nv_fp") ? kExport : kIntegers);
  }
  if (name.starts_with("fp") || name.starts_with("float")) {
    return refuse("FP8 weights of AutoRound are not supported");
  }
  return refuse("unknown data type");
}

namespace {

constexpr int64_t kNotQuantizedBits = 16;

Status WrongValue(std::string_view where, std::string_view key, const Json& value,
                  std::string_view expected) {
  return Malformed(FieldPath(where, key), "the value has the wrong type or is out of range")
      .Found(ShowJson(value))
      .Expected(expected)
      .Id(FindingId("config-field-invalid"));
}

// True for a field that says something: neither absent, null, false nor empty.
bool SaysSomething(const Json& fields, std::string_view key) {
  const Json* value = JsonMember(fields, key);
  return value != nullptr && *value != false && *value != Json("") &&
         !(value->is_structured() && value->empty());
}

// Keys whose presence makes the weights something that is not read; of the config and of entries.
Status CheckForeignKeys(const Json& fields, const std::string& where) {
  for (const std::string_view key : {"super_bits", "super_group_size"}) {
    if (!SaysSomething(fields, key)) continue;
    return Unsupported(FieldPath(where, key),
                       "double-quantized scales (GGUF schemes) are not supported")
        .Found(ShowJson(*JsonMember(fields, key)))
        .Id(FindingId("autoround-scheme"));
  }
  for (const std::string_view key : {"rotation_config", "spinquant_config"}) {
    if (!SaysSomething(fields, key)) continue;
    return Unsupported(FieldPath(where, key),
                       "rotated weights need the same rotation of the activations at run time")
        .Hint("Quantize the model without rotation")
        .Id(FindingId("rotation"));
  }
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> act_bits, OptionalInt(fields, "act_bits", where));
  if (act_bits.value_or(kNotQuantizedBits) < kNotQuantizedBits) {
    return Unsupported(FieldPath(where, "act_bits"),
                       "AutoRound exports with quantized activations are not supported")
        .Found(std::to_string(*act_bits))
        .Hint("Quantize only the weights (for example scheme W4A16)")
        .Id(FindingId("autoround-activations"));
  }
  return {};
}

// The four fields that the config and its entries share. Data types are checked first: a block of
// FP8 has a list for a group size.
Result<Entry> ParseEntry(std::string key, const Json& fields, const std::string& where) {
  Entry entry;
  entry.key = std::move(key);
  entry.where = where;
  PREPACK_TRY(RequireObject(fields, where));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> bits, OptionalInt(fields, "bits", where));
  if (bits && (*bits < 2 || (*bits > 8 && *bits < kNotQuantizedBits))) {
    return WrongValue(where, "bits", *JsonMember(fields, "bits"), "2 to 8, or 16 and more");
  }
  entry.bits = bits;
  PREPACK_TRY_ASSIGN(std::optional<std::string> data_type,
                     OptionalString(fields, "data_type", where));
  entry.data_type = std::move(data_type);
  const bool quantized = entry.bits.value_or(0) < kNotQuantizedBits;
  if (entry.data_type && quantized) {
    PREPACK_TRY(CheckDataType(*entry.data_type, FieldPath(where, "data_type")));
  }
  if (quantized) {
    PREPACK_TRY(CheckForeignKeys(fields, where));
  }
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> size, OptionalInt(fields, "group_size", where));
  if (size && *size <= 0 && *size != -1) {
    return WrongValue(where, "group_size", *JsonMember(fields, "group_size"),
                      "a positive number, or -1 for one group per channel");
  }
  entry.group_size = size;
  PREPACK_TRY_ASSIGN(const std::optional<bool> sym, OptionalBool(fields, "sym", where));
  entry.sym = sym;
  return entry;
}

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// Names of blocks: a list, or one string with commas.
Result<std::vector<std::string>> ParseBlocks(const QuantizationConfig& config) {
  std::vector<std::string> blocks;
  for (const std::string_view key : {"block_name_to_quantize", "to_quant_block_names"}) {
    const Json* value = JsonMember(*config.fields, key);
    if (value == nullptr) continue;
    if (value->is_string()) {
      const std::string text = value->get<std::string>();
      for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        const std::string_view name = Trim(std::string_view(text).substr(begin, end - begin));
        if (!name.empty()) blocks.emplace_back(name);
        begin = end + 1;
      }
      return blocks;
    }
    if (!value->is_array()) return WrongValue(config.where, key, *value, "names of blocks");
    for (const Json& name : *value) {
      // Older releases wrote a list of lists.
      const Json names = name.is_array() ? name : Json::array({name});
      for (const Json& inner : names) {
        if (!inner.is_string()) return WrongValue(config.where, key, inner, "names of blocks");
        blocks.push_back(inner.get<std::string>());
      }
    }
    return blocks;
  }
  return blocks;
}

bool IsLegacy(const QuantizationConfig& config) {
  const Json* method = JsonMember(*config.fields, "quant_method");
  return method != nullptr && method->is_string() &&
         LowerCase(method->get<std::string>()) == "intel/auto-round";
}

Result<Config> ParseOne(const QuantizationConfig& declared, FindingTally& findings) {
  Config config;
  config.where = declared.where;
  PREPACK_TRY_ASSIGN(const Entry top, ParseEntry("", *declared.fields, declared.where));
  if (IsLegacy(declared)) config.scheme.sym = std::nullopt;
  config.scheme = ApplyEntry(config.scheme, top);
  PREPACK_TRY_ASSIGN(PackingChoice packing, ParsePacking(declared, findings));
  config.packing = std::move(packing);
  PREPACK_TRY_ASSIGN(const std::optional<bool> model_free,
                     OptionalBool(*declared.fields, "model_free", declared.where));
  config.model_free = model_free.value_or(false);
  PREPACK_TRY_ASSIGN(const std::optional<std::string> version,
                     OptionalString(*declared.fields, "autoround_version", declared.where));
  if (version) config.version = ParseVersionNumber(*version);
  PREPACK_TRY_ASSIGN(std::vector<std::string> blocks, ParseBlocks(declared));
  config.blocks = std::move(blocks);
  const Json* extra = JsonMember(*declared.fields, "extra_config");
  if (extra == nullptr) return config;
  const std::string where = FieldPath(declared.where, "extra_config");
  PREPACK_TRY(RequireObject(*extra, where));
  for (const auto& [key, fields] : extra->items()) {
    PREPACK_TRY_ASSIGN(Entry entry,
                       ParseEntry(key, fields, fmt::format("{}[\"{}\"]", where, Printable(key))));
    config.extra.push_back(std::move(entry));
  }
  return config;
}

std::string ShowSym(std::optional<bool> sym) {
  return sym ? (*sym ? "true" : "false") : "absent";
}

std::string ShowEntry(const Entry* entry) {
  if (entry == nullptr) return "no such entry";
  const auto number = [](std::optional<int64_t> value) {
    return value ? std::to_string(*value) : "inherited";
  };
  return fmt::format("{}: bits {} group_size {} sym {} data_type {}", Printable(entry->key),
                     number(entry->bits), number(entry->group_size),
                     entry->sym ? ShowSym(entry->sym) : "inherited",
                     Printable(entry->data_type.value_or("inherited")));
}

bool SayTheSame(const Entry& a, const Entry& b) {
  return a.bits == b.bits && a.group_size == b.group_size && a.sym == b.sym &&
         a.data_type == b.data_type;
}

// Where AutoRound adds layers that the model class does not load, it names those that it leaves as
// they are in one copy only. What is plain is plain, whatever a copy says.
bool LeavesPlain(const Entry& entry) {
  return entry.bits.value_or(0) >= kNotQuantizedBits;
}

// An entry of one copy that the other copy lacks or words otherwise, as {ours, theirs}; both are
// nullptr where there is none. The order of the entries does not count.
std::pair<const Entry*, const Entry*> FirstDifference(const std::vector<Entry>& ours,
                                                      const std::vector<Entry>& theirs) {
  std::unordered_map<std::string_view, const Entry*> left;  // of theirs
  for (const Entry& entry : theirs) left.emplace(entry.key, &entry);
  for (const Entry& entry : ours) {
    const auto it = left.find(entry.key);
    if (it == left.end()) {
      if (!LeavesPlain(entry)) return {&entry, nullptr};
      continue;
    }
    if (!SayTheSame(entry, *it->second)) return {&entry, it->second};
    left.erase(it);
  }
  const auto other = std::ranges::find_if(
      theirs, [&](const Entry& entry) { return left.contains(entry.key) && !LeavesPlain(entry); });
  return {nullptr, other == theirs.end() ? nullptr : &*other};
}

std::vector<std::string_view> EntryKeys(const std::vector<Entry>& entries) {
  std::vector<std::string_view> keys;
  keys.reserve(entries.size());
  for (const Entry& entry : entries) keys.push_back(entry.key);
  return keys;
}

// Both values of everything that decides what the weights mean.
Status CompareCopy(const Config& first, const Config& copy) {
  struct Field {
    std::string_view key;
    std::string ours;
    std::string theirs;
  };
  const auto [ours, theirs] = FirstDifference(first.extra, copy.extra);
  const std::array<Field, 7> fields = {{
      {"bits", std::to_string(first.scheme.bits), std::to_string(copy.scheme.bits)},
      {"group_size", std::to_string(first.scheme.group_size),
       std::to_string(copy.scheme.group_size)},
      {"sym", ShowSym(first.scheme.sym), ShowSym(copy.scheme.sym)},
      {"data_type", first.scheme.data_type, copy.scheme.data_type},
      {"packing_format", first.packing.name, copy.packing.name},
      {"model_free", first.model_free ? "true" : "false", copy.model_free ? "true" : "false"},
      {"extra_config", ShowEntry(ours), ShowEntry(theirs)},
  }};
  for (const Field& field : fields) {
    if (field.ours == field.theirs) continue;
    return CopiesDisagree(FieldPath(copy.where, field.key), Printable(field.theirs),
                          Printable(field.ours), first.where);
  }
  return {};
}

}  // namespace

LayerScheme ApplyEntry(LayerScheme scheme, const Entry& entry) {
  if (entry.bits) scheme.bits = *entry.bits;
  if (entry.group_size) scheme.group_size = *entry.group_size;
  if (entry.sym) scheme.sym = entry.sym;
  if (entry.data_type) scheme.data_type = *entry.data_type;
  return scheme;
}

Result<Config> ParseConfig(std::span<const QuantizationConfig> configs, FindingTally& findings) {
  Result<Config> first = ParseOne(configs.front(), findings);
  if (!first.ok()) return first;
  FindingTally ignored;
  for (size_t i = 1; i < configs.size(); ++i) {
    PREPACK_TRY_ASSIGN(const Config copy, ParseOne(configs[i], ignored));
    PREPACK_TRY(CompareCopy(*first, copy));
    std::optional<RuleOrder> order = OrderOfCopy(EntryKeys(first->extra), EntryKeys(copy.extra),
                                                 FieldPath(copy.where, "extra_config"));
    if (order) first->other_orders.push_back(*std::move(order));
  }
  return first;
}

}  // namespace prepack::auto_round
