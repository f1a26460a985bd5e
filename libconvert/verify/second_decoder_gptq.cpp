#include <nlohmann/json.hpp>
#include <string>

#include "verify/second_config.h"
#include "verify/second_decoder_formats.h"
#include "verify/second_gptq_tensors.h"

namespace prepack {
namespace {

// Does an entry of `dynamic` say of some modules that they are symmetric, or not?
bool OverridesSymmetry(const Checkpoint& source) {
  const Json* rules = SecondConfigField(source, "dynamic");
  if (rules == nullptr || !rules->is_object()) return false;
  for (const auto& [pattern, rule] : rules->items()) {
    if (rule.is_object() && rule.contains("sym")) return true;
  }
  return false;
}

bool SaysVersion2(const Checkpoint& source) {
  for (const char* key : {"checkpoint_format", "format"}) {
    const Json* format = SecondConfigField(source, key);
    if (format != nullptr && *format == "gptq_v2") return true;
  }
  return false;
}

}  // namespace

Status DecodeGptq(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  if (OverridesSymmetry(source)) {
    return Unsupported("config.json: quantization_config.dynamic",
                       "the second decoder does not know which layers are symmetric");
  }
  SecondZeros zeros;
  if (const Json* sym = SecondConfigField(source, "sym")) zeros.symmetric = *sym != false;
  zeros.minus_one = !SaysVersion2(source);
  return DecodeGptqTensors(source, wanted, zeros, out);
}

}  // namespace prepack
