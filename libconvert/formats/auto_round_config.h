#ifndef PREPACK_FORMATS_AUTO_ROUND_CONFIG_H_
#define PREPACK_FORMATS_AUTO_ROUND_CONFIG_H_

// The quantization config of an AutoRound checkpoint (mirrors auto-round 0.15,
// auto_round/export/export_to_autoround/export.py; values that equal a default are not written).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/auto_round_packing.h"
#include "formats/finding_tally.h"
#include "formats/quantization_config.h"
#include "formats/rule_order.h"
#include "formats/version_number.h"

namespace prepack {

// How layers are quantized, as far as it matters for reading.
struct AutoRoundScheme {
  int64_t bits = 4;          // 16 and more: not quantized
  int64_t group_size = 128;  // positive, or -1: K
  // nullopt: an export of the time when readers took different defaults; the zero points tell.
  std::optional<bool> sym = true;
  std::string data_type = "int";

  bool quantized() const { return bits < 16; }
  friend bool operator==(const AutoRoundScheme&, const AutoRoundScheme&) = default;
};

// One entry of extra_config: what it does not say is inherited.
struct AutoRoundEntry {
  std::string key;
  std::string where;
  std::optional<int64_t> bits;
  std::optional<int64_t> group_size;
  std::optional<bool> sym;
  std::optional<std::string> data_type;
};

struct AutoRoundConfig {
  std::string where;  // "config.json: quantization_config"
  AutoRoundScheme scheme;
  AutoRoundPackingChoice packing;
  bool model_free = false;
  std::optional<VersionNumber> version;  // of AutoRound
  std::vector<std::string> blocks;       // prefixes of what is quantized; empty: no limit
  std::vector<AutoRoundEntry> extra;     // in the order of the file, which matters
  std::vector<RuleOrder> other_orders;   // of copies that have the entries in another one
};

// Parses the first of `configs`, which is not empty, and compares the copies with it: values that
// differ are kMalformed ("config-conflict"); entries in another order are not. Schemes that are not
// plain integers are kUnsupported, by name: MX, NVFP4, FP8, quantized activations, rotations,
// double quantization.
Result<AutoRoundConfig> ParseAutoRoundConfig(const std::vector<QuantizationConfig>& configs,
                                             FindingTally& findings);

// The scheme with what the entry says of it.
AutoRoundScheme ApplyEntry(AutoRoundScheme scheme, const AutoRoundEntry& entry);

}  // namespace prepack

#endif  // PREPACK_FORMATS_AUTO_ROUND_CONFIG_H_
