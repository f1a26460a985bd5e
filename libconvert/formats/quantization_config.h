#ifndef PREPACK_FORMATS_QUANTIZATION_CONFIG_H_
#define PREPACK_FORMATS_QUANTIZATION_CONFIG_H_

// Where a checkpoint declares how it is quantized. The places are those that transformers, vLLM
// (model_loader/weight_utils.py) and compressed-tensors (utils/safetensors_load.py) look into, and
// in their order:
//
//     config.json: quantization_config
//     config.json: text_config.quantization_config     (multimodal models)
//     config.json: compression_config                  (compressed-tensors before 0.5)

#include <string>

#include "base/result.h"
#include "container/json_strict.h"

namespace prepack {

struct QuantizationConfig {
  std::string where;   // "config.json: quantization_config", for errors
  std::string method;  // quant_method in lower case with - for _: "compressed-tensors", "gptq"
  const Json* fields = nullptr;  // points into the config that was searched
};

// Finds the declaration in a parsed config.json. None is kUnsupported ("not quantized"), one that
// is not an object, or whose quant_method is not a string, is kMalformed.
Result<QuantizationConfig> FindQuantizationConfig(const Json& config);

}  // namespace prepack

#endif  // PREPACK_FORMATS_QUANTIZATION_CONFIG_H_
