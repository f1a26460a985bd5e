#include "prepack/formats/quark/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/container/json_fields.h"
#include "prepack/formats/finding.h"

namespace prepack::quark {

Result<std::string> Text(const Json& fields, std::string_view key, std::string_view where) {
  PREPACK_TRY_ASSIGN(const std::optional<std::string> value, OptionalString(fields, key, where));
  return value.value_or("");
}

namespace {

constexpr size_t kMostSteps = 4;  // that are named
constexpr std::string_view kFp8 = "fp8_e4m3";

// The axis of the channels, and whether scales are computed at run time, by today's names or those
// of the first versions.
Result<std::optional<int64_t>> ChannelAxis(const Json& spec, std::string_view where) {
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> axis, OptionalInt(spec, "ch_axis", where));
  return axis ? axis : OptionalInt(spec, "axis", where);
}

Result<bool> IsDynamic(const Json& spec, std::string_view where) {
  PREPACK_TRY_ASSIGN(const std::optional<bool> dynamic, OptionalBool(spec, "is_dynamic", where));
  if (dynamic) return *dynamic;
  PREPACK_TRY_ASSIGN(const std::optional<bool> older, OptionalBool(spec, "dynamic", where));
  return older.value_or(false);
}

// What weights are called that are not read: by what tells them apart, because the tensors of
// several kinds have the same names and shapes.
std::string NameOfKind(std::string_view dtype, std::string_view scale_format,
                       std::string_view qscheme) {
  if (dtype == "fp4" && scale_format == "e8m0") return "MXFP4";
  if (dtype == "fp4" && scale_format == "e5m3") return "AMDFP4 (scales in e5m3)";
  if (dtype.starts_with("fp6")) return fmt::format("MXFP6 ({})", Printable(dtype));
  if (dtype == "mx6" || dtype == "mx9") return fmt::format("OCP MX ({})", dtype);
  if (dtype == kFp8 && scale_format == "e8m0") return "MXFP8";
  return fmt::format("{} {}", Printable(dtype), Printable(qscheme));
}

// The same with what may be the reason that it is not read.
Result<std::string> NameWeights(const Json& spec, const std::string& where) {
  PREPACK_TRY_ASSIGN(const std::string dtype, Text(spec, "dtype", where));
  PREPACK_TRY_ASSIGN(const std::string qscheme, Text(spec, "qscheme", where));
  PREPACK_TRY_ASSIGN(const std::string scale_format, Text(spec, "scale_format", where));
  PREPACK_TRY_ASSIGN(const std::string zeros, Text(spec, "zero_point_type", where));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> axis, ChannelAxis(spec, where));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> group, OptionalInt(spec, "group_size", where));
  PREPACK_TRY_ASSIGN(const std::optional<bool> symmetric, OptionalBool(spec, "symmetric", where));
  PREPACK_TRY_ASSIGN(const bool dynamic, IsDynamic(spec, where));
  std::string name = NameOfKind(dtype, scale_format, qscheme);
  if (qscheme == "per_group" && group) name += fmt::format(" in groups of {}", *group);
  if (qscheme == "per_channel" && axis.value_or(0) != 0) name += " of the inputs";
  if (zeros == "float32") name += " with zero points in floating point";
  if (dynamic) name += ", quantized at run time";
  if (dtype == kFp8 && !symmetric.value_or(true)) name += ", asymmetric";
  return name;
}

// Whether a spec of FP8 has one scale or one per channel; nullopt where it has others.
std::optional<Granularity> GranularityOf(std::string_view qscheme, int64_t axis, int64_t channels) {
  if (qscheme == "per_tensor") return Granularity::kTensor;
  if (qscheme == "per_channel" && axis == channels) return Granularity::kChannel;
  return std::nullopt;
}

// Two steps, of which the second quantizes the scales of the first: FP4 in groups of 16, whose
// scales are FP8 below one scale for all.
Result<bool> IsNvfp4(const Json& steps, const std::string& where) {
  if (steps.size() != 2) return false;
  for (const Json& step : steps) PREPACK_TRY(RequireObject(step, where));
  PREPACK_TRY_ASSIGN(const std::string codes, Text(steps[0], "dtype", where));
  PREPACK_TRY_ASSIGN(const std::string groups, Text(steps[0], "qscheme", where));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> size, OptionalInt(steps[0], "group_size", where));
  PREPACK_TRY_ASSIGN(const std::string scales, Text(steps[1], "dtype", where));
  PREPACK_TRY_ASSIGN(const std::string one, Text(steps[1], "qscheme", where));
  PREPACK_TRY_ASSIGN(const std::optional<bool> of_scales,
                     OptionalBool(steps[1], "is_scale_quant", where));
  return codes == "fp4" && groups == "per_group" && size == int64_t{fp4::kNvfp4Group} &&
         scales == kFp8 && one == "per_tensor" && of_scales.value_or(false);
}

// Codes that are quantized again, or their scales: "fp8_e4m3 per_tensor and then int4 per_channel".
Status NameSteps(const Json& steps, const std::string& where, std::string& name) {
  std::vector<std::string> names;
  for (const Json& step : steps) {
    PREPACK_TRY(RequireObject(step, where));
    PREPACK_TRY_ASSIGN(const std::string dtype, Text(step, "dtype", where));
    PREPACK_TRY_ASSIGN(const std::string qscheme, Text(step, "qscheme", where));
    PREPACK_TRY_ASSIGN(const std::optional<bool> scales,
                       OptionalBool(step, "is_scale_quant", where));
    names.push_back(fmt::format("{}{}{}{}", scales.value_or(false) ? "scales in " : "",
                                Printable(dtype), qscheme.empty() ? "" : " ", Printable(qscheme)));
    if (names.size() == kMostSteps) break;
  }
  name = fmt::format("{}", fmt::join(names, " and then "));
  return {};
}

// Integers of 4 or 8 bits, where they are of a kind that is read.
Result<std::optional<IntegerMeaning>> ParseIntegers(const Json& spec, const std::string& where) {
  PREPACK_TRY_ASSIGN(const std::string dtype, Text(spec, "dtype", where));
  IntegerMeaning meaning;
  meaning.is_signed = !dtype.starts_with('u');
  meaning.bits = dtype.ends_with('8') ? 8 : 4;
  const bool known = dtype == "int4" || dtype == "uint4" || dtype == "int8" || dtype == "uint8";
  PREPACK_TRY_ASSIGN(const std::string qscheme, Text(spec, "qscheme", where));
  PREPACK_TRY_ASSIGN(const std::string zeros, Text(spec, "zero_point_type", where));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> axis, ChannelAxis(spec, where));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> group, OptionalInt(spec, "group_size", where));
  PREPACK_TRY_ASSIGN(const std::optional<bool> symmetric, OptionalBool(spec, "symmetric", where));
  PREPACK_TRY_ASSIGN(const bool dynamic, IsDynamic(spec, where));
  meaning.symmetric = symmetric.value_or(true);
  if (!known || zeros == "float32" || dynamic) {
    return std::optional<IntegerMeaning>();
  }
  const bool by_inputs = axis.value_or(-1) == 1 || axis.value_or(-1) == -1;
  if (qscheme == "per_tensor") {
    meaning.granularity = Granularity::kTensor;
  } else if (qscheme == "per_channel" && axis.value_or(0) == 0) {
    meaning.granularity = Granularity::kChannel;
  } else if (qscheme == "per_group" && by_inputs && group.value_or(0) > 0) {
    meaning.granularity = Granularity::kGroup;
    meaning.group_size = static_cast<uint64_t>(*group);
  } else {
    return std::optional<IntegerMeaning>();
  }
  return std::optional(meaning);
}

Status ParseWeight(const Json& spec, const std::string& where, Spec& parsed) {
  if (spec.is_array()) {
    PREPACK_TRY_ASSIGN(const bool nvfp4, IsNvfp4(spec, where));
    if (nvfp4) {
      parsed.fp4 = fp4::Meaning{.nvfp4 = true, .activations = {}};
      return {};
    }
    parsed.twice = true;
    return NameSteps(spec, where, parsed.other);
  }
  PREPACK_TRY(RequireObject(spec, where));
  PREPACK_TRY_ASSIGN(const std::string dtype, Text(spec, "dtype", where));
  PREPACK_TRY_ASSIGN(const std::string qscheme, Text(spec, "qscheme", where));
  PREPACK_TRY_ASSIGN(const std::string scale_format, Text(spec, "scale_format", where));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> axis, ChannelAxis(spec, where));
  PREPACK_TRY_ASSIGN(const std::optional<bool> symmetric, OptionalBool(spec, "symmetric", where));
  const std::optional<Granularity> granularity = GranularityOf(qscheme, axis.value_or(0), 0);
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> group, OptionalInt(spec, "group_size", where));
  // AMDFP4 has the same tensors; only the format of the scales tells.
  if (dtype == "fp4" && scale_format == "e8m0" && qscheme == "per_group" &&
      group == int64_t{fp4::kMxGroup}) {
    parsed.fp4 = fp4::Meaning();
    return {};
  }
  PREPACK_TRY_ASSIGN(parsed.integers, ParseIntegers(spec, where));
  if (parsed.integers) return {};
  const bool plain_scales = scale_format.empty() || scale_format == "float32";
  if (dtype != kFp8 || !granularity || !plain_scales || !symmetric.value_or(true)) {
    PREPACK_TRY_ASSIGN(parsed.other, NameWeights(spec, where));
    return {};
  }
  parsed.fp8 = fp8::Meaning();
  parsed.fp8->granularity = granularity;
  return {};
}

// Which activations of 8 bits there are beside weights of a kind.
struct InputKind {
  std::string_view weights;
  ActivationType type = ActivationType::kFloat;
  std::string_view expected;
};

constexpr InputKind kFp8Inputs{
    .weights = "FP8",
    .type = ActivationType::kFloat,
    .expected = "fp8_e4m3 per_tensor, or dynamic per_channel with ch_axis 1"};
constexpr InputKind kIntegerInputs{
    .weights = "integer",
    .type = ActivationType::kInt,
    .expected =
        "int8 or uint8 per_tensor, or dynamic per_channel with ch_axis 1; dynamic uint8 must be "
        "asymmetric"};

// Per tensor, or at run time per token.
Status ParseInput(const Json& spec, const std::string& where, const InputKind& kind,
                  ActivationScheme& activations) {
  PREPACK_TRY(RequireObject(spec, where));
  PREPACK_TRY_ASSIGN(const std::string dtype, Text(spec, "dtype", where));
  PREPACK_TRY_ASSIGN(const std::string qscheme, Text(spec, "qscheme", where));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> axis, ChannelAxis(spec, where));
  PREPACK_TRY_ASSIGN(const bool dynamic, IsDynamic(spec, where));
  PREPACK_TRY_ASSIGN(const std::optional<bool> symmetric, OptionalBool(spec, "symmetric", where));
  const std::optional<Granularity> granularity = GranularityOf(qscheme, axis.value_or(1), 1);
  const bool is_unsigned = dtype == "uint8";
  const bool known =
      kind.type == ActivationType::kInt ? is_unsigned || dtype == "int8" : dtype == kFp8;
  // Symmetric bytes from 0 to 255 have the zero point 0: no signed number at run time is the same.
  const bool clips = is_unsigned && dynamic && symmetric.value_or(true);
  if (!known || clips || !granularity || (!dynamic && *granularity != Granularity::kTensor)) {
    return Unsupported(where, fmt::format("activations of this kind are not supported with {} "
                                          "weights",
                                          kind.weights))
        .Found(fmt::format("{} {}, {}{}", Printable(dtype), Printable(qscheme),
                           dynamic ? "dynamic" : "static", clips ? ", symmetric" : ""))
        .Expected(kind.expected)
        .Hint("Quantize the model again with such activations, or quantize the weights only")
        .Id(FindingId("scheme-unsupported"));
  }
  activations.type = kind.type;
  activations.bits = 8;
  // Floats have no zero point. That of unsigned numbers counts, whatever Quark calls it.
  if (kind.type == ActivationType::kInt) {
    activations.symmetric = symmetric.value_or(true) && !is_unsigned;
  }
  activations.dynamic = dynamic;
  activations.granularity = *granularity == Granularity::kTensor ? ActivationGranularity::kTensor
                                                                 : ActivationGranularity::kToken;
  return {};
}

// Activations of NVFP4 are of the same kind; input_scale_2 is the scale of their scales.
Status ParseNvfp4Input(const Json& spec, const std::string& where, fp4::Meaning& meaning) {
  PREPACK_TRY_ASSIGN(const bool nvfp4, spec.is_array() ? IsNvfp4(spec, where) : false);
  if (nvfp4) {
    meaning.activations = fp4::FourBitActivations(fp4::kNvfp4Group);
    return {};
  }
  return Unsupported(where, "activations of this kind are not supported with NVFP4 weights")
      .Found(ShowJson(spec))
      .Expected("fp4 in groups of 16, whose scales are fp8_e4m3")
      .Hint("Quantize the model again with such activations, or quantize the weights only")
      .Id(FindingId("scheme-unsupported"));
}

// Activations of MXFP4 are of the same kind, or FP8, and always quantized at run time.
Status ParseFp4Input(const Json& spec, const std::string& where, fp4::Meaning& meaning) {
  if (meaning.nvfp4) return ParseNvfp4Input(spec, where, meaning);
  PREPACK_TRY(RequireObject(spec, where));
  PREPACK_TRY_ASSIGN(const std::string dtype, Text(spec, "dtype", where));
  if (dtype == kFp8) return ParseInput(spec, where, kFp8Inputs, meaning.activations);
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> group, OptionalInt(spec, "group_size", where));
  PREPACK_TRY_ASSIGN(const bool dynamic, IsDynamic(spec, where));
  if (dtype == "fp4" && group == int64_t{fp4::kMxGroup} && dynamic) {
    meaning.activations = fp4::FourBitActivations(fp4::kMxGroup);
    return {};
  }
  return Unsupported(where, "activations of this kind are not supported with MXFP4 weights")
      .Found(fmt::format("{} in groups of {}, {}", Printable(dtype), group.value_or(0),
                         dynamic ? "dynamic" : "static"))
      .Expected("fp4 in groups of 32, dynamic, or fp8_e4m3")
      .Hint("Quantize the model again with such activations, or quantize the weights only")
      .Id(FindingId("scheme-unsupported"));
}

Status ParseInputs(const Json& input, const std::string& where, Spec& parsed) {
  if (parsed.fp4) return ParseFp4Input(input, where, *parsed.fp4);
  if (parsed.fp8) return ParseInput(input, where, kFp8Inputs, parsed.fp8->activations);
  if (!parsed.integers) return {};
  PREPACK_TRY(ParseInput(input, where, kIntegerInputs, parsed.integers->activations));
  PREPACK_TRY_ASSIGN(const std::string dtype, Text(input, "dtype", where));
  parsed.integers->unsigned_inputs = dtype.starts_with('u');
  return {};
}

}  // namespace

Result<Spec> ParseSpec(const Json& fields, const std::string& where) {
  PREPACK_TRY(RequireObject(fields, where));
  Spec parsed;
  const Json* weight = JsonMember(fields, "weight");
  if (weight == nullptr) return parsed;
  PREPACK_TRY(ParseWeight(*weight, FieldPath(where, "weight"), parsed));
  const Json* input = JsonMember(fields, "input_tensors");
  if (input == nullptr) return parsed;
  parsed.inputs = ParseInputs(*input, FieldPath(where, "input_tensors"), parsed);
  if (parsed.inputs.ok() || parsed.inputs.kind() == ErrorKind::kUnsupported) return parsed;
  return std::move(parsed.inputs);
}

}  // namespace prepack::quark
