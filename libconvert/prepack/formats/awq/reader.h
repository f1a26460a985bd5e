#ifndef PREPACK_FORMATS_AWQ_READER_H_
#define PREPACK_FORMATS_AWQ_READER_H_

// The quantization config of an AWQ checkpoint, in the spellings of all its writers (mirrors
// AutoAWQ 0.2.9, awq/models/_config.py; GPTQModel 7.3, quantization/config.py; and the early
// quant_config.json).
//
//     bits | w_bit, group_size | q_group_size, zero_point | sym (its opposite),
//     version | format | checkpoint_format, in any case

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/quantization_config.h"

namespace prepack::awq {

struct Config {
  std::string where;  // "config.json: quantization_config"
  int64_t bits = 4;
  int64_t group_size = 128;  // positive, or -1: one group of K
  bool zero_point = true;
  std::string version = "gemm";  // in lower case
  bool lm_head = false;
  std::vector<std::string> not_converted;  // modules_to_not_convert
  const Json* dynamic = nullptr;           // GPTQModel's overrides by module, or nullptr
};

// Parses the first of `configs`, which is not empty, and compares the copies with it: values that
// differ are kMalformed ("config-conflict"). Widths and words that are not read, and rotations, are
// kUnsupported.
Result<Config> ParseConfig(std::span<const QuantizationConfig> configs);

}  // namespace prepack::awq

#endif  // PREPACK_FORMATS_AWQ_READER_H_
