#include "formats/auto_round_packing.h"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "formats/finding.h"
#include "formats/json_fields.h"

namespace prepack {
namespace {

struct KnownPacking {
  std::string_view name;
  AutoRoundPacking packing;
};

constexpr std::array<KnownPacking, 7> kIntegerPackings = {{
    {"auto_round:auto_gptq", AutoRoundPacking::kGptqMinusOne},
    {"auto_round:gptq", AutoRoundPacking::kGptqMinusOne},
    {"auto", AutoRoundPacking::kGptqMinusOne},
    {"auto_round", AutoRoundPacking::kGptqStored},
    {"auto_round:gptqmodel", AutoRoundPacking::kGptqStored},
    {"auto_round:auto_awq", AutoRoundPacking::kAwq},
    {"auto_round:awq", AutoRoundPacking::kAwq},
}};

struct ForeignPacking {
  std::string_view name;
  std::string_view content;
  std::string_view hint;
};

constexpr std::string_view kIntegers = "Quantize the model to integers (scheme W4A16 or the like)";
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

Result<AutoRoundPackingChoice> ChoosePacking(const std::string& name, const std::string& where) {
  for (const KnownPacking& known : kIntegerPackings) {
    if (known.name == name) return AutoRoundPackingChoice{known.packing, name};
  }
  for (const ForeignPacking& foreign : kForeignPackings) {
    if (foreign.name != name) continue;
    return Unsupported(where, fmt::format("this packing_format stores {}", foreign.content))
        .Found(fmt::format("\"{}\"", name))
        .Hint(foreign.hint)
        .Id(FindingId("autoround-scheme"));
  }
  return Unsupported(where, "the packing_format is not known")
      .Found(fmt::format("\"{}\"", Printable(name)))
      .Expected(
          "auto_round, auto_round:auto_gptq, auto_round:gptqmodel or auto_round:auto_awq")
      .Id(FindingId("autoround-packing-unknown"));
}

// The backend of releases up to 0.4 described the tensors: "auto_round:gptq:exllamav2". Later it
// names a kernel to run: "gptq:marlin".
std::optional<AutoRoundPackingChoice> LegacyPacking(const std::string& backend) {
  if (!backend.starts_with("auto_")) return std::nullopt;
  const bool gptq = backend.find("gptq") != std::string::npos;
  const bool awq = backend.find("awq") != std::string::npos;
  return AutoRoundPackingChoice{gptq  ? AutoRoundPacking::kGptqMinusOne
                                : awq ? AutoRoundPacking::kAwq
                                      : AutoRoundPacking::kGptqStored,
                                backend};
}

}  // namespace

Result<AutoRoundPackingChoice> ParseAutoRoundPacking(const QuantizationConfig& config,
                                                     FindingTally& findings) {
  const Result<std::optional<std::string>> format =
      OptionalString(*config.fields, "packing_format", config.where);
  if (!format.ok()) return format.status();
  const Result<std::optional<std::string>> backend =
      OptionalString(*config.fields, "backend", config.where);
  if (!backend.ok()) return backend.status();
  const std::optional<AutoRoundPackingChoice> legacy =
      *backend ? LegacyPacking(LowerCase(**backend)) : std::nullopt;
  if (!*format) return legacy.value_or(AutoRoundPackingChoice{});
  Result<AutoRoundPackingChoice> chosen =
      ChoosePacking(LowerCase(**format), FieldPath(config.where, "packing_format"));
  if (chosen.ok() && legacy && legacy->packing != chosen->packing) {
    findings.Add("autoround-backend-differs", FieldPath(config.where, "backend"),
                 fmt::format("backend \"{}\" means other tensors than packing_format \"{}\", which "
                             "is believed",
                             Printable(legacy->name), chosen->name));
  }
  return chosen;
}

Status CheckAutoRoundDataType(std::string_view data_type, std::string_view where) {
  const std::string name = LowerCase(data_type);
  const auto refuse = [&](std::string_view what) {
    return Unsupported(where, what)
        .Found(fmt::format("\"{}\"", Printable(name)))
        .Expected("\"int\"")
        .Hint(kIntegers)
        .Id(FindingId("autoround-scheme"));
  };
  if (name.ends_with("_dq")) return refuse("double-quantized scales (GGUF schemes) are not read");
  if (name == "int" || name == "int_sym" || name == "int_asym") return {};
  if (name.starts_with("mx_int")) return refuse("MXINT weights are not read");
  if (name.starts_with("mx")) return refuse("MXFP weights are not read");
  if (name.starts_with("nv")) return refuse("NVFP4 weights are not read");
  if (name.starts_with("fp") || name.starts_with("float")) {
    return refuse("FP8 weights of AutoRound are not read");
  }
  return refuse("the data type is not known");
}

}  // namespace prepack
