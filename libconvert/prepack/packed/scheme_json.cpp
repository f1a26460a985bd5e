// Schemes as JSON, with their short name ("w4a16") and their numbers. A document states both, and
// reading it refuses a name that contradicts the numbers: readers in other languages may rely on
// either.

#include "prepack/packed/scheme_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "prepack/base/status.h"
#include "prepack/container/json_fields.h"

namespace prepack {
namespace {

// Blocks may be larger than the module.
constexpr uint64_t kMostChannels = uint64_t{1} << 31;

// One word out of a small set.
template <typename Value>
Value Word(JsonFields& fields, std::string_view key,
           std::optional<Value> (*from_name)(std::string_view)) {
  const std::string word = fields.Text(key);
  if (const std::optional<Value> value = from_name(word)) return *value;
  fields.Keep(Unsupported(fields.where(),
                          fmt::format("this version does not know the {} of the scheme", key))
                  .Found(word));
  return {};
}

std::optional<ActivationType> ActivationTypeFromName(std::string_view name) {
  if (name == "int") return ActivationType::kInt;
  if (name == "float") return ActivationType::kFloat;
  return std::nullopt;
}

ActivationScheme ReadActivations(JsonFields fields) {
  ActivationScheme activations;
  activations.type = Word(fields, "type", ActivationTypeFromName);
  activations.bits = static_cast<uint32_t>(fields.Uint("bits", 1, 16));
  activations.granularity = Word(fields, "granularity", ActivationGranularityFromName);
  // Groups may be wider than the module, like the blocks of its weights.
  activations.group_size = fields.Uint("group_size", 0, kMostChannels);
  activations.symmetric = fields.Bool("symmetric");
  activations.dynamic = fields.Bool("dynamic");
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
    case CodeType::kF4E2M1:
      return scheme.bits == 4 && scheme.symmetric;
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

Json ActivationsJson(const ActivationScheme& activations) {
  if (activations.type == ActivationType::kNone) return nullptr;
  return {{"type", activations.type == ActivationType::kInt ? "int" : "float"},
          {"bits", activations.bits},
          {"granularity", ActivationGranularityName(activations.granularity)},
          {"group_size", activations.group_size},
          {"symmetric", activations.symmetric},
          {"dynamic", activations.dynamic}};
}

Result<ActivationScheme> ReadActivationScheme(const Json& json, std::string_view where) {
  if (json.is_null()) return ActivationScheme{};
  Status status;
  const ActivationScheme activations =
      ReadActivations(JsonFields(json, std::string(where), status));
  PREPACK_TRY(std::move(status));
  return activations;
}

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
  Status status;
  JsonFields fields(json, std::string(where), status);
  Scheme scheme;
  scheme.code = Word(fields, "code", CodeTypeFromName);
  scheme.bits = static_cast<uint32_t>(fields.Uint("bits", 1, 16));
  scheme.granularity = Word(fields, "granularity", GranularityFromName);
  scheme.group_size = fields.Uint("group_size", 1, kMostChannels);
  scheme.scale_rows = fields.Uint("scale_rows", 1, kMostChannels);
  scheme.symmetric = fields.Bool("symmetric");
  const Json* activations = fields.Any("activations");
  if (activations != nullptr && !activations->is_null()) {
    scheme.activations = ReadActivations(fields.Same(*activations));
  }
  const std::string name = fields.Text("name");
  PREPACK_TRY(std::move(status));
  if (!WidthFits(scheme) || !ScalesFit(scheme, n, k)) {
    return Malformed(std::string(where), "the numbers contradict each other")
        .Found(fmt::format("{} of {} bits, scales per {} over {} input and {} output channels",
                           CodeTypeName(scheme.code), scheme.bits,
                           GranularityName(scheme.granularity), scheme.group_size,
                           scheme.scale_rows));
  }
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
  Status status;
  JsonFields fields(json, std::string(where), status);
  BlockedDesc desc;
  for (const auto& [key, field] :
       {std::pair{"dims", &desc.dims}, std::pair{"padded_dims", &desc.padded_dims},
        std::pair{"strides", &desc.strides}}) {
    const std::vector<uint64_t> values = fields.Uints(key);
    if (values.size() == field->size()) {
      std::ranges::copy(values, field->begin());
    } else {
      fields.Keep(Malformed(where, fmt::format("field \"{}\" is not two numbers", key)));
    }
  }
  const Json& inner = *fields.Array("inner_blocks");
  desc.s8s8_compensation = fields.Bool("s8s8_compensation");
  desc.zero_point_compensation = fields.Bool("zero_point_compensation");
  const std::string name = fields.Text("name");
  PREPACK_TRY(std::move(status));
  if (inner.size() > desc.inner.capacity()) {
    return Malformed(where, "field \"inner_blocks\" has too many blocks")
        .Found(fmt::format("{}", inner.size()))
        .Expected(fmt::format("at most {}", desc.inner.capacity()));
  }
  for (const Json& block : inner) {
    if (!block.is_array() || block.size() != 2 || !block[0].is_number_unsigned() ||
        !block[1].is_number_unsigned() || block[0].get<uint64_t>() > 1) {
      return Malformed(where, "field \"inner_blocks\" is not pairs of numbers");
    }
    desc.inner.push_back(
        {.dim = static_cast<uint32_t>(block[0].get<uint64_t>()), .size = block[1].get<uint64_t>()});
  }
  if (Status fits = CheckBlockedDesc(desc, k, n); !fits.ok()) return std::move(fits).In(where);
  if (name != desc.Name()) {
    return Malformed(where, "the name of the form contradicts its other fields")
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
  Status status;
  JsonFields fields(json, std::string(where), status);
  OneDnnOrigin origin{.version = fields.Text("version"),
                      .hash = fields.Text("hash"),
                      .isa = fields.Text("isa"),
                      .implementation = fields.Text("implementation"),
                      .probe_m = fields.Uint("probe_m")};
  PREPACK_TRY(std::move(status));
  return origin;
}

}  // namespace prepack
