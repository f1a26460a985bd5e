#pragma once

// What Quark's quantization config says of each module (mirrors amd-quark 0.13,
// torch/quantization/config/config.py).

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/module_match.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/quark/spec.h"

namespace prepack::quark {

inline constexpr std::string_view kWithoutRotation =
    "Quantize the model without r4 and online_r1_rotation";

struct Config {
  struct Rule {
    std::string pattern;
    Spec spec;
  };

  std::string where;
  Spec all;
  // The quantizer takes the first that matches, but config.json has them sorted by pattern.
  std::vector<Rule> layers;
  std::optional<Spec> type;  // of linear layers as a class
  std::vector<std::string> excluded;
  std::vector<ConfigPattern> excluded_regexes;
  std::set<std::string, std::less<>> rotated;  // modules whose inputs are rotated at run time
  bool awq_order = true;                       // see IntegerMeaning

  // By the first rule.
  const Spec& SpecOf(std::string_view module) const;
  // All rules for the module that say different things, in the order of the file.
  std::vector<const Rule*> RulesOf(std::string_view module) const;
  // Does the config want the module left as it is? An error when an expression takes too long.
  Result<bool> Excludes(std::string_view module) const;
};

// The config, which all copies of it agree on.
Result<Config> ParseConfigs(std::span<const QuantizationConfig> declared);

}  // namespace prepack::quark
