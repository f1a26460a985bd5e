#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/json.h"
#include "prepack/formats/finding.h"

namespace prepack {

// The part of a quantizer's version that tells what it stored.
struct VersionNumber {
  unsigned major = 0;
  unsigned minor = 0;

  friend bool operator==(const VersionNumber&, const VersionNumber&) = default;
  bool IsBefore(const VersionNumber& other) const {
    return major != other.major ? major < other.major : minor < other.minor;
  }
};

// Of "0.16.1", "7.3.4.dev1", "7"; nullopt when the text does not begin with a number.
std::optional<VersionNumber> ParseVersionNumber(std::string_view text);
std::string ShowVersion(const VersionNumber& version);

// Where a checkpoint declares how it is quantized. The places are those that transformers, vLLM
// (model_loader/weight_utils.py), compressed-tensors (utils/safetensors_load.py) and GPTQModel
// (quantization/config.py) look into:
//
//     config.json: quantization_config
//     config.json: text_config.quantization_config     (multimodal models; also llm_config)
//     config.json: compression_config                  (compressed-tensors before 0.5)
//     config.json: ANY.quantization_config             (in any nested model, when none is above)
//     params.json: quantization_config, quantization   (Mistral, when there is no config.json)
//     quantize_config.json                             (AutoGPTQ, GPTQModel: the same again)
//     hf_quant_config.json: quantization               (ModelOpt, with or without config.json's)
//     quant_config.json                                (early AWQ)
//     quantization_config.json                         (AutoRound: the same again)
//
// Readers disagree about which copy counts. The first one is taken here; formats that have copies
// compare them and refuse a checkpoint whose copies differ in what the weights mean.

struct QuantizationConfig {
  std::string where;   // "config.json: quantization_config", for errors
  std::string method;  // quant_method in lower case with - for _: "compressed-tensors", "gptq"
  const Json* fields = nullptr;  // points into the checkpoint
  bool beside = false;           // a file of its own, not a part of config.json
};

// Keys from the top of config.json downwards.
using ConfigPath = std::vector<std::string>;

// Where config.json declares it, in the order above.
std::vector<ConfigPath> DeclarationPaths(const Json& config);

// Every declaration, in the order above, at least one: none is kUnsupported, as the checkpoint is
// not quantized, or declares it in another way (formats/foreign.h). One that is not an object, or
// whose quant_method is not a string, is kMalformed; so is a quant_method that differs from the
// first one's. A declaration without quant_method gets that of the first, or the one that its keys
// tell.
//
// Left out are files beside a config.json that declares another method: converters leave those of
// the format that they read (compressed-tensors' converter of AWQ does), and loaders take
// config.json.
Result<std::vector<QuantizationConfig>> FindQuantizationConfigs(const Checkpoint& checkpoint);

// The error of a copy that says something else than the first declaration, which is at `first`, of
// what is at `where` in the copy. Both have to be printable.
Status CopiesDisagree(std::string_view where, std::string_view found, std::string_view expected,
                      std::string_view first);

// A finding ("config-left-behind") for every file that was left out.
Status ReportLeftBehind(const Checkpoint& checkpoint, FindingTally& findings);

}  // namespace prepack
