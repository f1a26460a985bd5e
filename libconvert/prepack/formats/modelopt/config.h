#ifndef PREPACK_FORMATS_MODELOPT_CONFIG_H_
#define PREPACK_FORMATS_MODELOPT_CONFIG_H_

// The quantization_config of ModelOpt, in config.json or in hf_quant_config.json; readers.h says
// what is stored.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/fp8/module.h"
#include "prepack/formats/quantization_config.h"

namespace prepack::modelopt {

// What `quant_algo` says.
enum class Algo : uint8_t {
  kFp8,               // one scale per module, static activations
  kPerChannel,        // one scale per channel, activations per token
  kBlocksWeightOnly,  // blocks of 128 × 128
  kBlocks,            // the same, and activations in groups of 128
  kUnquantized,
  kMixed,   // the whole model: each module says it for itself
  kUnread,  // known, and not read
};

struct Entry {
  Algo algo = Algo::kUnquantized;
  std::string name;  // as the config spells it

  // What it says of a module's weights; `algo` is one of FP8's.
  fp8::Meaning Meaning() const;
};

struct Config {
  std::string where;
  Entry all;
  std::map<std::string, Entry, std::less<>> layers;  // of kMixed: modules, or parents
  std::vector<std::string> excluded;                 // names and wildcards

  // Does the config want the module left as it is?
  bool Excludes(std::string_view module) const;
  // What it says of the module; nullptr where it says nothing.
  const Entry* Find(std::string_view module) const;
};

// The config, which all copies of it agree on. A model whose only algorithm is not read is
// kUnsupported.
Result<Config> ParseConfigs(std::span<const QuantizationConfig> declared);

}  // namespace prepack::modelopt

#endif  // PREPACK_FORMATS_MODELOPT_CONFIG_H_
