#include "formats/conv1d.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "formats/finding.h"
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

Status RefuseInputsFirst(const Checkpoint& checkpoint, std::string_view module,
                         const StoredTensor& weight, uint64_t rows, uint64_t columns) {
  if (rows == columns || !IsConv1d(checkpoint.config(), module)) return {};
  const StoredTensor* bias = checkpoint.Find(fmt::format("{}.bias", module));
  if (bias == nullptr || bias->shape != TensorShape{columns}) return {};
  return Unsupported(checkpoint.Where(weight),
                     "the weight of a Conv1D is quantized as the model stores it, [K, N]: its "
                     "scales belong to input channels, which is not read")
      .Found(fmt::format("[{}, {}] beside a bias of {}", rows, columns, columns))
      .Expected(fmt::format("[N, K] = [{}, {}]", columns, rows))
      .Hint(
          "Quantize the float model with a tool that stores a Conv1D as any other linear layer, "
          "such as GPTQModel or AutoRound")
      .Id(FindingId("storage-unsupported"));
}

}  // namespace prepack
