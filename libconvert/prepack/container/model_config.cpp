// Looks up fields of config.json where the architectures have put them: at the top, or in the
// nested config of the language model.

#include "prepack/container/model_config.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string>

namespace prepack {
namespace {

constexpr std::array<std::string_view, 2> kNested = {"text_config", "llm_config"};

std::optional<DType> FloatType(const Json& config) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    const Json* name = JsonMember(config, key);
    if (name == nullptr || !name->is_string()) continue;
    const auto& text = name->get_ref<const std::string&>();
    if (text == "bfloat16") return DType::kBF16;
    if (text == "float16") return DType::kF16;
    if (text == "float32") return DType::kF32;
  }
  return std::nullopt;
}

}  // namespace

std::span<const std::string_view> NestedConfigNames() {
  return kNested;
}

const Json& LanguageConfig(const Json& config) {
  for (const std::string_view name : kNested) {
    const Json* nested = JsonMember(config, name);
    if (nested != nullptr && nested->is_object()) return *nested;
  }
  return config;
}

std::string_view ModelTypeOf(const Json& config) {
  const Json* type = JsonMember(LanguageConfig(config), "model_type");
  if (type == nullptr || !type->is_string()) return {};
  return type->get_ref<const std::string&>();
}

std::optional<DType> DTypeOfConfig(const Json& config) {
  const std::optional<DType> whole = FloatType(config);
  return whole ? whole : FloatType(LanguageConfig(config));
}

}  // namespace prepack
