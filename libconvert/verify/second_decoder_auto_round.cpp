#include <nlohmann/json.hpp>
#include <string>

#include "verify/second_config.h"
#include "verify/second_decoder_formats.h"
#include "verify/second_gptq_tensors.h"

namespace prepack {
namespace {

SecondGptqMeaning MeaningOf(const Checkpoint& source, const std::string& packing,
                            bool old_model_free) {
  SecondGptqMeaning meaning;
  meaning.symmetric = SecondAllSymmetric(source);
  const bool stored = packing == "auto_round" || packing == "auto_round:gptqmodel";
  meaning.minus_one = !stored || old_model_free;
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
  return DecodeGptqTensors(source, wanted, MeaningOf(source, packing, wanted.old_model_free), out);
}

}  // namespace prepack
