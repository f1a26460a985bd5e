// Schemes as JSON, with their short name ("w4a16") and their numbers. A document states both, and
// reading it refuses a name that contradicts the numbers: readers in other languages may rely on
// either.

#include "prepack/packed/scheme_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "prepack/base/status.h"
#include "prepack/container/required_fields.h"

namespace prepack {
namespace {

// Blocks may be larger than the module.
constexpr uint64_t kMostChannels = uint64_t{1} << 31;

Json ActivationsJson(const ActivationScheme& activations) {
  if (activations.type == ActivationType::kNone) return nullptr;
  return {{"type", activations.type == ActivationType::kInt ? "int" : "float"},
          {"bits", activations.bits},
          {"granularity", ActivationGranularityName(activations.granularity)},
          {"group_size", activations.group_size},
          {"symmetric", activations.symmetric},
          {"dynamic", activations.dynamic}};
}

// One word out of a small set.
template <typename Value>
Result<Value> WordField(const Json& json, std::string_view key,
                        std::optional<Value> (*from_name)(std::string_view),
                        std::string_view where) {
  PREPACK_TRY_ASSIGN(const std::string word, StringField(json, key, where));
  if (const std::optional<Value> value = from_name(word)) return *value;
  return Unsupported(std::string(where),
                     fmt::format("this version does not know the {} of the scheme", key))
      .Found(word);
}

// A number in [low, high].
Result<uint64_t> RangeField(const Json& json, std::string_view key, uint64_t low, uint64_t high,
                            std::string_view where) {
  PREPACK_TRY_ASSIGN(const uint64_t value, UintField(json, key, where));
  if (value >= low && value <= high) return value;
  return Malformed(std::string(where), fmt::format("field \"{}\" is out of range", key))
      .Found(fmt::format("{}", value))
      .Expected(fmt::format("{} to {}", low, high));
}

std::optional<ActivationType> ActivationTypeFromName(std::string_view name) {
  if (name == "int") return ActivationType::kInt;
  if (name == "float") return ActivationType::kFloat;
  return std::nullopt;
}

Result<ActivationScheme> ReadActivations(const Json& json, uint64_t k, std::string_view where) {
  ActivationScheme activations;
  PREPACK_TRY_ASSIGN(const ActivationType type,
                     WordField(json, "type", ActivationTypeFromName, where));
  PREPACK_TRY_ASSIGN(const uint64_t bits, RangeField(json, "bits", 1, 16, where));
  PREPACK_TRY_ASSIGN(const ActivationGranularity granularity,
                     WordField(json, "granularity", ActivationGranularityFromName, where));
  PREPACK_TRY_ASSIGN(const uint64_t group_size, RangeField(json, "group_size", 0, k, where));
  PREPACK_TRY_ASSIGN(const bool symmetric, BoolField(json, "symmetric", where));
  PREPACK_TRY_ASSIGN(const bool dynamic, BoolField(json, "dynamic", where));
  activations.type = type;
  activations.bits = static_cast<uint32_t>(bits);
  activations.granularity = granularity;
  activations.group_size = group_size;
  activations.symmetric = symmetric;
  activations.dynamic = dynamic;
  return activations;
}

bool WidthFits(const Scheme& scheme) {
  switch (scheme.code) {
    case CodeType::kU4:
      return scheme.bits <= 4;
    case CodeType::kU8:
    case CodeType::kS8:
      return scheme.bits <= 8;
    case CodeType::kF8E4M3:
      return scheme.bits == 8 && scheme.symmetric;
    case CodeType::kBF16:
      return scheme.bits == 16 && scheme.symmetric;
  }
  return false;
}

// Whether the sizes match the granularity of the scales.
bool ScalesFit(const Scheme& scheme, uint64_t n, uint64_t k) {
  switch (scheme.granularity) {
    case Granularity::kTensor:
      return scheme.group_size == k && scheme.scale_rows == n;
    case Granularity::kChannel:
      return scheme.group_size == k && scheme.scale_rows == 1;
    case Granularity::kGroup:
      return scheme.scale_rows == 1;
    case Granularity::kBlock:
      return true;
  }
  return false;
}

}  // namespace

Json SchemeJson(const Scheme& scheme) {
  return {{"name", SchemeName(scheme)},
          {"code", CodeTypeName(scheme.code)},
          {"bits", scheme.bits},
          {"granularity", GranularityName(scheme.granularity)},
          {"group_size", scheme.group_size},
          {"scale_rows", scheme.scale_rows},
          {"symmetric", scheme.symmetric},
          {"activations", ActivationsJson(scheme.activations)}};
}

Result<Scheme> ReadScheme(const Json& json, uint64_t n, uint64_t k, std::string_view where) {
  Scheme scheme;
  PREPACK_TRY_ASSIGN(const CodeType code, WordField(json, "code", CodeTypeFromName, where));
  PREPACK_TRY_ASSIGN(const uint64_t bits, RangeField(json, "bits", 1, 16, where));
  PREPACK_TRY_ASSIGN(const Granularity granularity,
                     WordField(json, "granularity", GranularityFromName, where));
  PREPACK_TRY_ASSIGN(const uint64_t group_size,
                     RangeField(json, "group_size", 1, kMostChannels, where));
  PREPACK_TRY_ASSIGN(const uint64_t scale_rows,
                     RangeField(json, "scale_rows", 1, kMostChannels, where));
  PREPACK_TRY_ASSIGN(const bool symmetric, BoolField(json, "symmetric", where));
  scheme.code = code;
  scheme.bits = static_cast<uint32_t>(bits);
  scheme.granularity = granularity;
  scheme.group_size = group_size;
  scheme.scale_rows = scale_rows;
  scheme.symmetric = symmetric;
  const auto activations = json.find("activations");
  if (activations == json.end()) {
    return Malformed(std::string(where), "field \"activations\" is missing");
  }
  if (!activations->is_null()) {
    PREPACK_TRY_ASSIGN(const ActivationScheme read, ReadActivations(*activations, k, where));
    scheme.activations = read;
  }
  if (!WidthFits(scheme) || !ScalesFit(scheme, n, k)) {
    return Malformed(std::string(where), "the numbers contradict each other")
        .Found(fmt::format("{} of {} bits, scales per {} over {} input and {} output channels",
                           CodeTypeName(scheme.code), scheme.bits,
                           GranularityName(scheme.granularity), scheme.group_size,
                           scheme.scale_rows));
  }
  PREPACK_TRY_ASSIGN(const std::string name, StringField(json, "name", where));
  if (name != SchemeName(scheme)) {
    return Malformed(where, "the name of the scheme contradicts its numbers")
        .Found(Printable(name))
        .Expected(SchemeName(scheme));
  }
  return scheme;
}

Json BlockedDescJson(const BlockedDesc& desc) {
  Json inner = Json::array();
  for (const InnerBlock& block : desc.inner) inner.push_back({block.dim, block.size});
  return {{"name", desc.Name()},
          {"dims", desc.dims},
          {"padded_dims", desc.padded_dims},
          {"strides", desc.strides},
          {"inner_blocks", std::move(inner)},
          {"s8s8_compensation", desc.s8s8_compensation},
          {"zero_point_compensation", desc.zero_point_compensation}};
}

Result<BlockedDesc> ReadBlockedDesc(const Json& json, uint64_t n, uint64_t k,
                                    std::string_view where) {
  BlockedDesc desc;
  for (const auto& [key, field] :
       {std::pair{"dims", &desc.dims}, std::pair{"padded_dims", &desc.padded_dims},
        std::pair{"strides", &desc.strides}}) {
    PREPACK_TRY_ASSIGN(const std::vector<uint64_t> values, UintArrayField(json, key, where));
    if (values.size() != field->size()) {
      return Malformed(std::string(where), fmt::format("field \"{}\" is not two numbers", key));
    }
    std::ranges::copy(values, field->begin());
  }
  PREPACK_TRY_ASSIGN(const Json* inner, ArrayField(json, "inner_blocks", where));
  if (inner->size() > desc.inner.capacity()) {
    return Malformed(std::string(where), "field \"inner_blocks\" has too many blocks")
        .Found(fmt::format("{}", inner->size()))
        .Expected(fmt::format("at most {}", desc.inner.capacity()));
  }
  for (const Json& block : *inner) {
    if (!block.is_array() || block.size() != 2 || !block[0].is_number_unsigned() ||
        !block[1].is_number_unsigned() || block[0].get<uint64_t>() > 1) {
      return Malformed(std::string(where), "field \"inner_blocks\" is not pairs of numbers");
    }
    desc.inner.push_back(
        {.dim = static_cast<uint32_t>(block[0].get<uint64_t>()), .size = block[1].get<uint64_t>()});
  }
  PREPACK_TRY_ASSIGN(const bool s8s8, BoolField(json, "s8s8_compensation", where));
  PREPACK_TRY_ASSIGN(const bool zero_point, BoolField(json, "zero_point_compensation", where));
  desc.s8s8_compensation = s8s8;
  desc.zero_point_compensation = zero_point;
  if (Status status = CheckBlockedDesc(desc, k, n); !status.ok()) {
    return std::move(status).In(where);
  }
  PREPACK_TRY_ASSIGN(const std::string name, StringField(json, "name", where));
  if (name != desc.Name()) {
    return Malformed(std::string(where), "the name of the form contradicts its other fields")
        .Found(Printable(name))
        .Expected(desc.Name());
  }
  return desc;
}

Json OneDnnOriginJson(const OneDnnOrigin& origin) {
  return {{"version", origin.version},
          {"hash", origin.hash},
          {"isa", origin.isa},
          {"implementation", origin.implementation},
          {"probe_m", origin.probe_m}};
}

Result<OneDnnOrigin> ReadOneDnnOrigin(const Json& json, std::string_view where) {
  OneDnnOrigin origin;
  for (const auto& [key, field] :
       {std::pair{"version", &origin.version}, std::pair{"hash", &origin.hash},
        std::pair{"isa", &origin.isa}, std::pair{"implementation", &origin.implementation}}) {
    PREPACK_TRY_ASSIGN(std::string value, StringField(json, key, where));
    *field = std::move(value);
  }
  PREPACK_TRY_ASSIGN(const uint64_t probe_m, UintField(json, "probe_m", where));
  origin.probe_m = probe_m;
  return origin;
}

}  // namespace prepack
