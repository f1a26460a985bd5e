#include "prepack/packed/scheme_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

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

// A word of a small set.
template <typename Value>
Result<Value> WordField(const Json& json, std::string_view key,
                        std::optional<Value> (*from_name)(std::string_view),
                        std::string_view where) {
  const Result<std::string> word = StringField(json, key, where);
  if (!word.ok()) return word.status();
  if (const std::optional<Value> value = from_name(*word)) return *value;
  return Unsupported(std::string(where),
                     fmt::format("this version does not know the {} of the scheme", key))
      .Found(*word);
}

// A number in [low, high].
Result<uint64_t> RangeField(const Json& json, std::string_view key, uint64_t low, uint64_t high,
                            std::string_view where) {
  const Result<uint64_t> value = UintField(json, key, where);
  if (!value.ok()) return value.status();
  if (*value >= low && *value <= high) return *value;
  return Malformed(std::string(where), fmt::format("field \"{}\" is out of range", key))
      .Found(fmt::format("{}", *value))
      .Expected(fmt::format("{} to {}", low, high));
}

std::optional<ActivationType> ActivationTypeFromName(std::string_view name) {
  if (name == "int") return ActivationType::kInt;
  if (name == "float") return ActivationType::kFloat;
  return std::nullopt;
}

Result<ActivationScheme> ReadActivations(const Json& json, uint64_t k, std::string_view where) {
  ActivationScheme activations;
  const Result<ActivationType> type = WordField(json, "type", ActivationTypeFromName, where);
  if (!type.ok()) return type.status();
  const Result<uint64_t> bits = RangeField(json, "bits", 1, 16, where);
  if (!bits.ok()) return bits.status();
  const Result<ActivationGranularity> granularity =
      WordField(json, "granularity", ActivationGranularityFromName, where);
  if (!granularity.ok()) return granularity.status();
  const Result<uint64_t> group_size = RangeField(json, "group_size", 0, k, where);
  if (!group_size.ok()) return group_size.status();
  const Result<bool> symmetric = BoolField(json, "symmetric", where);
  if (!symmetric.ok()) return symmetric.status();
  const Result<bool> dynamic = BoolField(json, "dynamic", where);
  if (!dynamic.ok()) return dynamic.status();
  activations.type = *type;
  activations.bits = static_cast<uint32_t>(*bits);
  activations.granularity = *granularity;
  activations.group_size = *group_size;
  activations.symmetric = *symmetric;
  activations.dynamic = *dynamic;
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

// Do the sizes fit what the scales are said to be for?
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
  const Result<CodeType> code = WordField(json, "code", CodeTypeFromName, where);
  if (!code.ok()) return code.status();
  const Result<uint64_t> bits = RangeField(json, "bits", 1, 16, where);
  if (!bits.ok()) return bits.status();
  const Result<Granularity> granularity =
      WordField(json, "granularity", GranularityFromName, where);
  if (!granularity.ok()) return granularity.status();
  const Result<uint64_t> group_size = RangeField(json, "group_size", 1, kMostChannels, where);
  if (!group_size.ok()) return group_size.status();
  const Result<uint64_t> scale_rows = RangeField(json, "scale_rows", 1, kMostChannels, where);
  if (!scale_rows.ok()) return scale_rows.status();
  const Result<bool> symmetric = BoolField(json, "symmetric", where);
  if (!symmetric.ok()) return symmetric.status();
  scheme.code = *code;
  scheme.bits = static_cast<uint32_t>(*bits);
  scheme.granularity = *granularity;
  scheme.group_size = *group_size;
  scheme.scale_rows = *scale_rows;
  scheme.symmetric = *symmetric;
  const auto activations = json.find("activations");
  if (activations == json.end()) {
    return Malformed(std::string(where), "field \"activations\" is missing");
  }
  if (!activations->is_null()) {
    const Result<ActivationScheme> read = ReadActivations(*activations, k, where);
    if (!read.ok()) return read.status();
    scheme.activations = *read;
  }
  if (!WidthFits(scheme) || !ScalesFit(scheme, n, k)) {
    return Malformed(std::string(where), "the numbers do not fit each other")
        .Found(fmt::format("{} of {} bits, scales per {} over {} input and {} output channels",
                           CodeTypeName(scheme.code), scheme.bits,
                           GranularityName(scheme.granularity), scheme.group_size,
                           scheme.scale_rows));
  }
  const Result<std::string> name = StringField(json, "name", where);
  if (!name.ok()) return name.status();
  if (*name != SchemeName(scheme)) {
    return Malformed(where, "the name of the scheme is not that of its numbers")
        .Found(Printable(*name))
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
    const Result<std::vector<uint64_t>> values = UintArrayField(json, key, where);
    if (!values.ok()) return values.status();
    if (values->size() != field->size()) {
      return Malformed(std::string(where), fmt::format("field \"{}\" is not two numbers", key));
    }
    std::ranges::copy(*values, field->begin());
  }
  const Result<const Json*> inner = ArrayField(json, "inner_blocks", where);
  if (!inner.ok()) return inner.status();
  if ((*inner)->size() > desc.inner.capacity()) {
    return Malformed(std::string(where), "field \"inner_blocks\" has too many of them")
        .Found(fmt::format("{}", (*inner)->size()))
        .Expected(fmt::format("at most {}", desc.inner.capacity()));
  }
  for (const Json& block : **inner) {
    if (!block.is_array() || block.size() != 2 || !block[0].is_number_unsigned() ||
        !block[1].is_number_unsigned() || block[0].get<uint64_t>() > 1) {
      return Malformed(std::string(where), "field \"inner_blocks\" is not pairs of numbers");
    }
    desc.inner.push_back(
        {.dim = static_cast<uint32_t>(block[0].get<uint64_t>()), .size = block[1].get<uint64_t>()});
  }
  const Result<bool> s8s8 = BoolField(json, "s8s8_compensation", where);
  if (!s8s8.ok()) return s8s8.status();
  const Result<bool> zero_point = BoolField(json, "zero_point_compensation", where);
  if (!zero_point.ok()) return zero_point.status();
  desc.s8s8_compensation = *s8s8;
  desc.zero_point_compensation = *zero_point;
  if (Status status = CheckBlockedDesc(desc, k, n); !status.ok()) {
    return std::move(status).In(where);
  }
  const Result<std::string> name = StringField(json, "name", where);
  if (!name.ok()) return name.status();
  if (*name != desc.Name()) {
    return Malformed(std::string(where), "the name of the form contradicts its other fields")
        .Found(Printable(*name))
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
    Result<std::string> value = StringField(json, key, where);
    if (!value.ok()) return value.status();
    *field = *std::move(value);
  }
  const Result<uint64_t> probe_m = UintField(json, "probe_m", where);
  if (!probe_m.ok()) return probe_m.status();
  origin.probe_m = *probe_m;
  return origin;
}

}  // namespace prepack
