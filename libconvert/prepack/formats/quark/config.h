#ifndef PREPACK_FORMATS_QUARK_CONFIG_H_
#define PREPACK_FORMATS_QUARK_CONFIG_H_

// What Quark's quantization config says of each module (mirrors amd-quark 0.13,
// torch/quantization/config/config.py).

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/fp4/module.h"
#include "prepack/formats/fp8/module.h"
#include "prepack/formats/module_match.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/quark/integers.h"

namespace prepack::quark {

// How a module is quantized.
struct Spec {
  std::optional<fp8::Meaning> fp8;         // where it is FP8 of a kind that is read
  std::optional<fp4::Meaning> fp4;         // where it is MXFP4 or NVFP4
  std::optional<IntegerMeaning> integers;  // where it is integers of 4 or 8 bits
  std::string other;                       // else what it is, for people; empty: not quantized

  bool quantizes() const { return fp8 || fp4 || integers || !other.empty(); }
};

struct Config {
  struct Rule {
    std::string pattern;
    Spec spec;
  };

  std::string where;
  Spec all;
  std::vector<Rule> layers;  // the first whose pattern matches counts
  std::optional<Spec> type;  // of linear layers as a class
  std::vector<std::string> excluded;
  std::vector<ConfigPattern> excluded_regexes;
  bool awq_order = true;  // see IntegerMeaning

  const Spec& SpecOf(std::string_view module) const;
  // Does the config want the module left as it is? An error when an expression takes too long.
  Result<bool> Excludes(std::string_view module) const;
};

// The config, which all copies of it agree on.
Result<Config> ParseConfigs(std::span<const QuantizationConfig> declared);

}  // namespace prepack::quark

#endif  // PREPACK_FORMATS_QUARK_CONFIG_H_
