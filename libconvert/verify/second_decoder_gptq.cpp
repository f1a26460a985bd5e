#include <nlohmann/json.hpp>
#include <string>

#include "verify/second_config.h"
#include "verify/second_decoder_formats.h"
#include "verify/second_gptq_tensors.h"

namespace prepack {
namespace {

bool SaysVersion2(const Checkpoint& source) {
  for (const char* key : {"checkpoint_format", "format"}) {
    const Json* format = SecondConfigField(source, key);
    if (format != nullptr && *format == "gptq_v2") return true;
  }
  return false;
}

}  // namespace

Status DecodeGptq(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  SecondZeros zeros;
  zeros.symmetric = SecondAllSymmetric(source);
  zeros.minus_one = !SaysVersion2(source);
  return DecodeGptqTensors(source, wanted, zeros, out);
}

}  // namespace prepack
