#include "prepack/formats/gptq/declaration.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/json_fields.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/rows/row_checks.h"

namespace prepack {

namespace {

// The other spellings of a key, and the one that is used here.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kSpellings = {{
    {"w_bit", "bits"},
    {"wbits", "bits"},
    {"q_group_size", "group_size"},
    {"format", "checkpoint_format"},
}};

std::string CanonicalKey(std::string_view key) {
  std::string lower = LowerCase(key);
  for (const auto& [other, canonical] : kSpellings) {
    if (lower == other) return std::string(canonical);
  }
  return lower;
}

// The members of one copy by canonical key.
class Members {
 public:
  Status Collect(const Json& object, std::string_view where) {
    for (const auto& [key, value] : object.items()) {
      if (value.is_null()) continue;
      std::string canonical = CanonicalKey(key);
      if (const Json* first = JsonMember(members_, canonical)) {
        if (*first == value) continue;
        return Malformed(FieldPath(where, Printable(key)), "two spellings of one key disagree")
            .Found(ShowJson(value))
            .Expected(fmt::format("{}, as {}.{} says", ShowJson(*first), where, canonical))
            .Id(FindingId("config-conflict"));
      }
      members_[canonical] = value;
      sources_.emplace_back(std::move(canonical), &value);
    }
    return {};
  }

  const Json& object() const { return members_; }
  // The value where it stands in the checkpoint, or nullptr.
  const Json* Source(std::string_view key) const {
    const auto it = std::ranges::find(sources_, key, [](const auto& s) { return s.first; });
    return it == sources_.end() ? nullptr : it->second;
  }

 private:
  Json members_ = Json::object();
  std::vector<std::pair<std::string, const Json*>> sources_;
};

Status RefuseGptqFeatures(const Json& object, std::string_view where) {
  PREPACK_TRY_ASSIGN(const std::optional<bool> marlin,
                     OptionalBool(object, "is_marlin_format", where));
  if (marlin.value_or(false)) {
    return Unsupported(FieldPath(where, "is_marlin_format"),
                       "weights that are tiled for GPUs (Marlin) are not supported")
        .Found("true")
        .Hint("Use the GPTQ checkpoint that it was made from")
        .Id(FindingId("gptq-format"));
  }
  PREPACK_TRY_ASSIGN(const std::optional<std::string> pack,
                     OptionalString(object, "pack_dtype", where));
  if (pack && LowerCase(*pack) != "int32") {
    return Unsupported(FieldPath(where, "pack_dtype"),
                       "codes packed into other words are not supported")
        .Found(Printable(*pack))
        .Expected("int32")
        .Id(FindingId("pack-dtype"));
  }
  const Json* rotation = JsonMember(object, "rotation");
  if (rotation != nullptr && *rotation != Json("") && *rotation != Json(false)) {
    return Unsupported(FieldPath(where, "rotation"), "rotated weights are not supported")
        .Found(ShowJson(*rotation))
        .Hint("They need an online Hadamard transform of the activations; quantize without it")
        .Id(FindingId("rotation"));
  }
  const Json* adapter = JsonMember(object, "adapter");
  if (adapter != nullptr && !adapter->empty()) {
    return Unsupported(FieldPath(where, "adapter"), "low-rank adapters are not supported")
        .Found(ShowJson(*adapter))
        .Hint(
            "Without the adapter the model computes something else; remove it from the config if "
            "that is what you want")
        .Id(FindingId("adapter-unsupported"));
  }
  return {};
}

Status AddProducers(const Json& object, std::string_view where,
                    std::vector<std::string>& producers) {
  PREPACK_TRY_ASSIGN(const std::optional<std::string> provider,
                     OptionalString(object, "provider", where));
  if (provider) producers.push_back(LowerCase(*provider));
  const Json* meta = JsonMember(object, "meta");
  const Json* quantizer = meta == nullptr ? nullptr : JsonMember(*meta, "quantizer");
  if (quantizer == nullptr) return {};
  // A list; older files have a bare string.
  const auto add = [&](const Json& value) {
    if (value.is_string()) producers.push_back(LowerCase(value.get_ref<const std::string&>()));
    return value.is_string();
  };
  const bool sound = quantizer->is_array()
                         ? std::ranges::all_of(*quantizer, [&](const Json& v) { return add(v); })
                         : add(*quantizer);
  if (sound) return {};
  return Malformed(FieldPath(where, "meta.quantizer"), "the field has the wrong type")
      .Found(ShowJson(*quantizer))
      .Expected("a string or a list of strings")
      .Id(FindingId("config-field-invalid"));
}

// GPTQModel writes the name of a mode, or an object with one.
Status ReadActivation(const Json& object, std::string_view where, std::string& activation) {
  const Json* value = JsonMember(object, "activation");
  if (value == nullptr || *value == Json(false)) return {};
  const Json* mode = value->is_object() ? JsonMember(*value, "mode") : value;
  if (mode != nullptr && mode->is_string()) {
    activation = mode->get<std::string>();
    return {};
  }
  return Malformed(FieldPath(where, "activation"), "the field has the wrong type")
      .Found(ShowJson(*value))
      .Expected("a name, or an object with a mode")
      .Id(FindingId("config-field-invalid"));
}

// Before 0.9, GPTQModel packed as AutoGPTQ did.
bool IsGptqModel(std::string_view producer) {
  constexpr std::string_view kName = "gptqmodel:";
  if (!producer.starts_with(kName)) return false;
  const std::optional<VersionNumber> version = ParseVersionNumber(producer.substr(kName.size()));
  return version && !version->IsBefore({0, 9});
}

bool IsAutoRound(std::string_view producer) {
  const std::string_view name = producer.substr(0, producer.find(':'));
  return name == "auto-round" || name == "auto_round" || name == "intel/auto-round";
}

}  // namespace

Result<GptqDeclaration> ParseGptqDeclaration(const QuantizationConfig& config) {
  const std::string& where = config.where;
  Members members;
  Status status = members.Collect(*config.fields, where);
  const Json& object = members.object();
  if (status.ok()) status = RefuseGptqFeatures(object, where);
  if (!status.ok()) return status;

  GptqDeclaration declared;
  declared.where = where;
  const auto take = [&status](auto result, auto& to) {
    if (!result.ok()) {
      if (status.ok()) status = result.status();
      return;
    }
    to = *std::move(result);
  };
  take(OptionalInt(object, "bits", where), declared.bits);
  take(OptionalInt(object, "group_size", where), declared.group_size);
  take(OptionalBool(object, "desc_act", where), declared.act_order);
  take(OptionalBool(object, "sym", where), declared.symmetric);
  take(OptionalString(object, "checkpoint_format", where), declared.format);
  take(OptionalBool(object, "lm_head", where), declared.lm_head);
  if (status.ok()) status = AddProducers(object, where, declared.producers);
  if (status.ok()) status = ReadActivation(object, where, declared.activation);
  if (!status.ok()) return status;
  if (declared.format) declared.format = LowerCase(*declared.format);
  declared.dynamic = members.Source("dynamic");
  declared.block_modules = members.Source("modules_in_block_to_quantize");
  return declared;
}

bool SubtractsWholeWords(const std::vector<std::string>& producers) {
  return std::ranges::any_of(producers,
                             [](const auto& p) { return IsGptqModel(p) || IsAutoRound(p); });
}

bool IsOfAutoRound(const std::vector<std::string>& producers) {
  return std::ranges::any_of(producers, IsAutoRound);
}

bool WrapsFields(const std::vector<std::string>& producers) {
  return std::ranges::any_of(producers, [](const auto& p) { return IsGptqModel(p); });
}

namespace {

bool IsNumber(DType dtype) {
  return dtype == DType::kI64 || dtype == DType::kI32 || dtype == DType::kBool;
}

// The number in a tensor of one integer; nullopt when there is none.
Result<std::optional<int64_t>> ReadScalar(const Checkpoint& checkpoint, std::string_view name) {
  const StoredTensor* tensor = checkpoint.Find(name);
  std::array<std::byte, 8> buffer{};
  if (tensor == nullptr || ElementCount(*tensor) != 1 || !IsNumber(tensor->dtype)) {
    return std::optional<int64_t>();
  }
  const auto bytes = std::span(buffer).first(static_cast<size_t>(tensor->bytes));
  PREPACK_TRY(checkpoint.Read(*tensor, 0, bytes));
  return std::optional(LoadLittleInt(bytes));
}

}  // namespace

Status RefuseTgiConfig(const Checkpoint& checkpoint) {
  const StoredTensor* tensor = checkpoint.Find("gptq_bits");
  if (tensor == nullptr) tensor = checkpoint.Find("gptq_groupsize");
  if (tensor == nullptr) return {};
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> bits, ReadScalar(checkpoint, "gptq_bits"));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> size, ReadScalar(checkpoint, "gptq_groupsize"));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> symmetric, ReadScalar(checkpoint, "gptq_sym"));
  return Unsupported(
             checkpoint.Where(*tensor),
             "only tensors hold the quantizer's settings, as text-generation-inference wrote them")
      .Expected("a quantization_config in config.json")
      .Hint(fmt::format("Add it: \"quantization_config\": {{\"quant_method\": \"gptq\", \"bits\": "
                        "{}, \"group_size\": {}, \"sym\": {}, \"desc_act\": false}}",
                        bits.value_or(4), size.value_or(128),
                        symmetric.value_or(0) != 0 ? "true" : "false"))
      .Id(FindingId("config-in-tensors"));
}

}  // namespace prepack
