#include "formats/conv1d.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "formats/json_fields.h"

namespace prepack {

bool IsConv1d(const Json& config, std::string_view module) {
  static constexpr std::array<std::string_view, 5> kModels = {"gpt2", "openai-gpt", "imagegpt",
                                                              "decision_transformer", "clvp"};
  static constexpr std::array<std::string_view, 4> kLayers = {"c_attn", "q_attn", "c_proj", "c_fc"};
  const Json* model = JsonMember(config, "model_type");
  return model != nullptr && model->is_string() &&
         std::ranges::find(kModels, model->get_ref<const std::string&>()) != kModels.end() &&
         std::ranges::find(kLayers, module.substr(module.rfind('.') + 1)) != kLayers.end();
}

}  // namespace prepack
