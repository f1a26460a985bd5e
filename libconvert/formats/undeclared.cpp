#include "formats/undeclared.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "formats/finding.h"
#include "formats/json_fields.h"
#include "formats/tgi_config.h"

namespace prepack {
namespace {

constexpr std::string_view kModelOpt = "hf_quant_config.json";

// Names that only tensors of quantized modules end with.
constexpr std::array<std::string_view, 6> kQuantized = {
    ".qweight", ".qzeros", ".weight_packed", ".weight_scale", ".weight_scale_inv", "_scale_inv"};

const StoredTensor* FindQuantized(const Checkpoint& checkpoint) {
  const auto found = std::ranges::find_if(checkpoint.tensors(), [](const StoredTensor& tensor) {
    return std::ranges::any_of(
        kQuantized, [&](std::string_view suffix) { return tensor.name.ends_with(suffix); });
  });
  return found == checkpoint.tensors().end() ? nullptr : &*found;
}

}  // namespace

bool IsMlx(const Checkpoint& checkpoint) {
  const Json* quantization = JsonMember(checkpoint.config(), "quantization");
  return quantization != nullptr && JsonMember(*quantization, "bits") != nullptr;
}

Status RefuseMlx(std::string_view where) {
  return Unsupported(where, "arrays of Apple's MLX are not read")
      .Hint("Quantize the float model with llm-compressor, GPTQModel, AutoAWQ or AutoRound")
      .Id(FindingId("method-unsupported"));
}

Status RefuseUndeclared(const Checkpoint& checkpoint) {
  Status status = RefuseTgiConfig(checkpoint);
  if (!status.ok()) return status;
  if (std::ranges::find(checkpoint.side_files(), kModelOpt) != checkpoint.side_files().end()) {
    return Unsupported(std::string(kModelOpt), "ModelOpt (FP8 or NVFP4) checkpoints are not read")
        .Hint("Save the model in 16 bits and quantize that to integers or FP8")
        .Id(FindingId("method-unsupported"));
  }
  if (IsMlx(checkpoint)) return RefuseMlx("config.json: quantization");
  if (const StoredTensor* tensor = FindQuantized(checkpoint)) {
    return Unsupported("config.json",
                       "the checkpoint is quantized, but nothing in it declares how: the "
                       "quantization_config is missing")
        .Found(fmt::format("tensor {}", Printable(tensor->name)))
        .Hint(
            "Take config.json from the folder that the quantizer wrote; saving the config of a "
            "loaded model anew may have lost the declaration")
        .Id(FindingId("config-missing"));
  }
  return Unsupported("config.json", "the checkpoint is not quantized: no quantization_config")
      .Hint(
          "Quantize it first, or name the folder that holds the config.json of the quantized "
          "model")
      .Id(FindingId("config-missing"));
}

}  // namespace prepack
