#include <nlohmann/json.hpp>
#include <string>

#include "verify/second_config.h"
#include "verify/second_decoder_formats.h"
#include "verify/second_gptq_tensors.h"

namespace prepack {
namespace {

Result<SecondZeros> MeaningOf(const Checkpoint& source, const std::string& packing) {
  SecondZeros meaning;
  if (const Json* extra = SecondConfigField(source, "extra_config")) {
    for (const auto& [key, entry] : extra->items()) {
      if (!entry.is_object() || !entry.contains("sym")) continue;
      return Unsupported("config.json: quantization_config.extra_config",
                         "the second decoder does not know which layers are symmetric");
    }
  }
  if (const Json* sym = SecondConfigField(source, "sym")) meaning.symmetric = *sym != false;
  const Json* model_free = SecondConfigField(source, "model_free");
  const bool stored = packing == "auto_round" || packing == "auto_round:gptqmodel";
  meaning.minus_one = !stored || (model_free != nullptr && *model_free == true);
  return meaning;
}

}  // namespace

Status DecodeAutoRound(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  std::string packing;
  for (const char* key : {"packing_format", "backend"}) {
    const Json* value = SecondConfigField(source, key);
    if (value == nullptr || !value->is_string()) continue;
    packing = value->get<std::string>();
    break;
  }
  if (packing.find("awq") != std::string::npos) return DecodeAwq(source, wanted, out);
  const Result<SecondZeros> meaning = MeaningOf(source, packing);
  if (!meaning.ok()) return meaning.status();
  return DecodeGptqTensors(source, wanted, *meaning, out);
}

}  // namespace prepack
