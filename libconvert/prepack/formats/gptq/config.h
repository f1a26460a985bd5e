#ifndef PREPACK_FORMATS_GPTQ_CONFIG_H_
#define PREPACK_FORMATS_GPTQ_CONFIG_H_

// What the copies of a GPTQ config say, with the spellings of all its writers brought together
// (mirrors GPTQModel 7, quantization/config.py, and AutoGPTQ):
//
//     bits  w_bit  wbits            checkpoint_format  format     desc_act   sym   lm_head
//     group_size  q_group_size      quant_method  method          dynamic    meta.quantizer
//
// Keys are matched whatever their case, as GPTQModel does.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "prepack/formats/finding.h"
#include "prepack/formats/gptq/reader.h"
#include "prepack/formats/module_match.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/regex.h"

namespace prepack {

// One entry of `dynamic`: pattern → overrides. "-:PATTERN" excludes a module; "+:PATTERN" and
// PATTERN override what is not nullopt. Matching is anchored at the start only, and the first
// entry that matches counts.
struct GptqRule {
  std::string text;  // as in the config
  ModuleRegex regex;
  bool exclude = false;
  std::optional<int64_t> bits{};
  std::optional<int64_t> group_size{};
  std::optional<bool> act_order{};
  std::optional<bool> symmetric{};
};

struct GptqConfig {
  GptqSettings settings;  // of a module that no rule names
  bool lm_head = false;
  std::vector<GptqRule> rules;               // in the order of the first copy that has any
  std::vector<RuleOrder> other_orders{};     // of copies that have the rules in another one
  std::vector<std::string> block_modules{};  // modules_in_block_to_quantize, flattened; or empty

  // The first rule that matches, or nullptr; an error when a pattern takes too long, or when the
  // name is none that patterns can be applied to.
  Result<const GptqRule*> RuleOf(std::string_view module) const;
  // Reports copies in whose order another rule than `rule` would count for the module, and would
  // mean something else ("config-order-differs").
  Status ReportOrder(std::string_view module, const GptqRule& rule, FindingTally& findings) const;
  // The settings of a module; a rule that excludes it changes nothing.
  Result<GptqSettings> SettingsOf(std::string_view module) const;
};

// Copies that disagree in what the weights mean are kMalformed ("config-conflict"); what one copy
// leaves out is taken from the next. Formats and features that are not read are kUnsupported.
Result<GptqConfig> ParseGptqConfigs(std::span<const QuantizationConfig> copies,
                                    FindingTally& findings);

}  // namespace prepack

#endif  // PREPACK_FORMATS_GPTQ_CONFIG_H_
