#ifndef PREPACK_FORMATS_QUARK_CONFIG_H_
#define PREPACK_FORMATS_QUARK_CONFIG_H_

// The quantization_config of Quark; readers.h says what is stored.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/fp8/module.h"
#include "prepack/formats/module_match.h"
#include "prepack/formats/quantization_config.h"

namespace prepack::quark {

// How a module is quantized.
struct Spec {
  std::optional<fp8::Meaning> fp8;  // where it is FP8 of a kind that is read
  std::string other;                // else what it is, for people; empty: not quantized
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

  const Spec& SpecOf(std::string_view module) const;
  // Does the config want the module left as it is? An error when an expression takes too long.
  Result<bool> Excludes(std::string_view module) const;
};

// The config, which all copies of it agree on.
Result<Config> ParseConfigs(std::span<const QuantizationConfig> declared);

}  // namespace prepack::quark

#endif  // PREPACK_FORMATS_QUARK_CONFIG_H_
