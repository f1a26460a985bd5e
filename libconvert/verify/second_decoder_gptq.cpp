#include <nlohmann/json.hpp>
#include <string>

#include "verify/second_config.h"
#include "verify/second_decoder_formats.h"
#include "verify/second_gptq_tensors.h"

namespace prepack {
namespace {

bool SaysFormat(const Checkpoint& source, const char* name) {
  for (const char* key : {"checkpoint_format", "format"}) {
    const Json* format = SecondConfigField(source, key, KeyCase::kAny);
    if (format != nullptr && *format == name) return true;
  }
  return false;
}

}  // namespace

Status DecodeGptq(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  SecondGptqMeaning meaning;
  meaning.symmetric = SecondAllSymmetric(source, KeyCase::kAny);
  meaning.planes = SaysFormat(source, "gptq_p");
  meaning.minus_one = !meaning.planes && !SaysFormat(source, "gptq_v2");
  return DecodeGptqTensors(source, wanted, meaning, out);
}

}  // namespace prepack
