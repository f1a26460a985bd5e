#include "formats/quantization_config.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "formats/json_fields.h"

namespace prepack {

namespace {

constexpr std::string_view kConfigFile = "config.json";

// The place and the value of the first declaration.
std::optional<QuantizationConfig> Locate(const Json& config) {
  const auto found = [](std::string path, const Json* fields) {
    return QuantizationConfig{std::string(kConfigFile) + ": " + std::move(path), "", fields};
  };
  if (const Json* fields = JsonMember(config, "quantization_config")) {
    return found("quantization_config", fields);
  }
  if (const Json* text_config = JsonMember(config, "text_config")) {
    if (const Json* fields = JsonMember(*text_config, "quantization_config")) {
      return found("text_config.quantization_config", fields);
    }
  }
  if (const Json* fields = JsonMember(config, "compression_config")) {
    return found("compression_config", fields);
  }
  return std::nullopt;
}

}  // namespace

Result<QuantizationConfig> FindQuantizationConfig(const Json& config) {
  std::optional<QuantizationConfig> found = Locate(config);
  if (!found) {
    return Unsupported(kConfigFile, "the checkpoint is not quantized: no quantization_config")
        .Hint(
            "Quantize it first, or name the folder that holds the config.json of the "
            "quantized model");
  }
  Status object = RequireObject(*found->fields, found->where);
  if (!object.ok()) return object;
  // Some tools wrote the whole declaration once more inside itself.
  if (const Json* inner = JsonMember(*found->fields, "quantization_config")) {
    found->where = FieldPath(found->where, "quantization_config");
    found->fields = inner;
    object = RequireObject(*inner, found->where);
    if (!object.ok()) return object;
  }

  Result<std::optional<std::string>> method =
      OptionalString(*found->fields, "quant_method", found->where);
  if (!method.ok()) return method.status();
  if (*method) {
    found->method = LowerCase(**method);
    std::replace(found->method.begin(), found->method.end(), '_', '-');
  } else if (found->fields->contains("config_groups")) {
    found->method = "compressed-tensors";  // the only format with this key; it is its default
  } else {
    return Unsupported(found->where, "quant_method is missing, so the format is unknown");
  }
  return std::move(*found);
}

}  // namespace prepack
