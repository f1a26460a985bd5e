#pragma once

// What the copies of a GPTQ config say, with the spellings of all its writers brought together
// (mirrors GPTQModel 7, quantization/config.py, and AutoGPTQ):
//
//     bits  w_bit  wbits            checkpoint_format  format     desc_act   sym   lm_head
//     group_size  q_group_size      quant_method  method          dynamic    meta.quantizer
//
// Keys are matched whatever their case, as GPTQModel does.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_match.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/regex.h"

namespace prepack::gptq {

// How a zero point z is stored.
enum class Zeros : uint8_t {
  kMinusOne,  // as z - 1: "gptq", which is also called v1
  kStored,    // as z: "gptq_v2", "gptq_p"
};

// What the config says of one module.
struct Settings {
  std::string where;         // place of the config, for errors
  uint32_t bits = 4;         // 2, 3, 4, 8; when planar, 2 to 8
  int64_t group_size = 128;  // input channels; -1: all of them
  bool symmetric = true;
  bool act_order = false;  // desc_act; the tensor g_idx decides
  Zeros zeros = Zeros::kMinusOne;
  // Asymmetric z - 1 where z is 0: what the producer is known to have done. Neither: such zero
  // points are lost, and are refused.
  bool word_borrow = false;  // 2, 4, 8 bits: subtracted from whole words (gptqmodel, auto-round)
  bool field_wrap = false;   // 3 bits: each field by itself (gptqmodel, not auto-round)
  bool planar = false;       // "gptq_p": bit planes; zeros is kStored then
  // AutoRound stores some modules in another width than its config says: take the one that the
  // tensors have, and say so in a finding.
  bool bits_from_tensors = false;
};

// One entry of `dynamic`: pattern → overrides. "-:PATTERN" excludes a module; "+:PATTERN" and
// PATTERN override what is not nullopt. Matching is anchored at the start only, and the first
// entry that matches counts.
struct Rule {
  std::string text;  // as in the config
  ModuleRegex regex;
  bool exclude = false;
  std::optional<int64_t> bits{};
  std::optional<int64_t> group_size{};
  std::optional<bool> act_order{};
  std::optional<bool> symmetric{};
};

struct Config {
  Settings settings;  // of a module that no rule names
  bool lm_head = false;
  std::vector<Rule> rules;                   // in the order of the first copy that has any
  std::vector<RuleOrder> other_orders{};     // of copies that have the rules in another one
  std::vector<std::string> block_modules{};  // modules_in_block_to_quantize, flattened; or empty

  // The first rule that matches, or nullptr; an error when a pattern takes too long, or when the
  // name is none that patterns can be applied to.
  Result<const Rule*> RuleOf(std::string_view module) const;
  // Reports copies in whose order another rule than `rule` would count for the module, and would
  // mean something else ("config-order-differs").
  Status ReportOrder(std::string_view module, const Rule& rule, FindingTally& findings) const;
  // The settings of a module that `rule`, from RuleOf, is for; a rule that excludes it changes
  // nothing, nor does a null one.
  Settings SettingsUnder(const Rule* rule) const;
};

// Copies that disagree in what the weights mean are kMalformed ("config-conflict"); what one copy
// leaves out is taken from the next. Formats and features that are not read are kUnsupported.
Result<Config> ParseConfigs(std::span<const QuantizationConfig> copies, FindingTally& findings);

// One copy of a GPTQ config, normalised; nullopt and nullptr where it says nothing.
struct Declaration {
  std::string where;
  std::optional<int64_t> bits;
  std::optional<int64_t> group_size;
  std::optional<bool> act_order;
  std::optional<bool> symmetric;
  std::optional<std::string> format;  // lower case
  std::optional<bool> lm_head;
  std::string activation;         // how activations are quantized at run time; empty: not at all
  const Json* dynamic = nullptr;  // points into the checkpoint, like the next
  const Json* block_modules = nullptr;  // modules_in_block_to_quantize
  std::vector<std::string> producers;   // "gptqmodel:7.3.4", lower case
};

// A wrong type, or two spellings of one key that disagree, is kMalformed; tensors or features that
// are not read (Marlin, pack_dtype, rotation, adapter) are kUnsupported.
Result<Declaration> ParseDeclaration(const QuantizationConfig& config);

// The producer is known to borrow across fields where it stores z - 1; or to wrap each field.
bool SubtractsWholeWords(const std::vector<std::string>& producers);
bool WrapsFields(const std::vector<std::string>& producers);
// AutoRound wrote it. Of several patterns that match a module it applies the last, and of several
// rules of `dynamic` the first counts: the width of a module may be another than its rule says.
bool IsOfAutoRound(const std::vector<std::string>& producers);

// Early quantizers of text-generation-inference declared nothing in config.json: they stored the
// settings as tensors of one number beside the weights (mirrors TGI 2, utils/weights.py).
//
//     gptq_bits       I64, I32   4
//     gptq_groupsize  I64, I32   128
//     gptq_sym        BOOL       absent before it was introduced: asymmetric

// OK without such tensors; else kUnsupported, with the config that says the same: it is the user
// who knows that nothing else was meant.
Status RefuseTgiConfig(const Checkpoint& checkpoint);

}  // namespace prepack::gptq
