#pragma once

// What AutoRound's `packing_format` says of the tensors (mirrors auto-round 0.15,
// auto_round/export/export_to_autoround/export.py and inference/backend.py):
//
//     packing_format                                     tensors    zero point stored as
//     auto_round:auto_gptq, auto_round:gptq, auto        GPTQ       z − 1
//     auto_round, auto_round:gptqmodel                   GPTQ       z
//     auto_round:auto_awq, auto_round:awq                AWQ gemm   z
//     key absent                                         GPTQ       z − 1
//     legacy `backend` with gptq, awq, neither of them   GPTQ, AWQ, GPTQ   z − 1, z, z
//
// One kind of export does not do what it says: formats/auto_round/reader.h.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_match.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/regex.h"

namespace prepack::auto_round {

enum class Packing : uint8_t { kGptqMinusOne, kGptqStored, kAwq };

struct PackingChoice {
  Packing packing = Packing::kGptqMinusOne;
  std::string name;  // in lower case, as declared; for messages
};

// packing_format, or else the legacy backend. A name that is not known, or that is known for
// tensors which are not read (FP8, MX, NVFP4, MLX, dequantized weights), is kUnsupported. Where
// both keys are there and differ, packing_format wins and it is a finding.
Result<PackingChoice> ParsePacking(const QuantizationConfig& config, FindingTally& findings);

// kUnsupported, by name, unless the data type is one of plain integers. `where` is its field.
Status CheckDataType(std::string_view data_type, std::string_view where);

// The quantization config of an AutoRound checkpoint (mirrors auto-round 0.15,
// auto_round/export/export_to_autoround/export.py; values that equal a default are not written).

// How layers are quantized, as far as it matters for reading.
struct LayerScheme {
  int64_t bits = 4;          // 16 and more: not quantized
  int64_t group_size = 128;  // positive, or -1: K
  // nullopt: an export of the time when readers took different defaults; the zero points tell.
  std::optional<bool> sym = true;
  std::string data_type = "int";

  bool quantized() const { return bits < 16; }
  friend bool operator==(const LayerScheme&, const LayerScheme&) = default;
};

// One entry of extra_config: what it does not say is inherited.
struct Entry {
  std::string key;
  std::string where;
  std::optional<int64_t> bits;
  std::optional<int64_t> group_size;
  std::optional<bool> sym;
  std::optional<std::string> data_type;
};

struct Config {
  std::string where;  // "config.json: quantization_config"
  LayerScheme scheme;
  PackingChoice packing;
  bool model_free = false;
  std::optional<VersionNumber> version;  // of AutoRound
  std::vector<std::string> blocks;       // prefixes of what is quantized; empty: no limit
  std::vector<Entry> extra;              // in the order of the file, which matters
  std::vector<RuleOrder> other_orders;   // of copies that have the entries in another one
};

// Parses the first of `configs`, which is not empty, and compares the copies with it: values that
// differ are kMalformed ("config-conflict"); entries in another order are not. Schemes that are not
// plain integers are kUnsupported, by name: MX, NVFP4, FP8, quantized activations, rotations,
// double quantization.
Result<Config> ParseConfig(std::span<const QuantizationConfig> configs, FindingTally& findings);

// The scheme with what the entry says of it.
LayerScheme ApplyEntry(LayerScheme scheme, const Entry& entry);

// Which entry of extra_config describes a module (mirrors auto-round 0.15,
// auto_round/inference/convert_model.py): exact names win; every other key is a regular expression
// that is searched for anywhere in the name, and the first match in the order of the file counts.

// The name without what model classes put in front of it: "model.language_model.layers.0.x" and
// "language_model.model.layers.0.x" are "layers.0.x". Tensors and configs of vision models differ
// there.
std::string_view WithoutModelPrefix(std::string_view name);

class Matcher {
 public:
  // Refers to the config and to the checkpoint of `modules`. Keys that do not compile are skipped,
  // as AutoRound does, and keys that match nothing change nothing: both become findings.
  static Result<Matcher> Make(const Config& config, std::span<const ModuleTensors> modules,
                              FindingTally& findings);

  // What the config says of the module; of one that no entry describes, the scheme of all.
  LayerScheme SchemeOf(std::string_view module) const;
  // The entry, or nullptr. `module` is one of the modules that Make was given.
  const Entry* EntryOf(std::string_view module) const;
  // True when the module lies in a block that is quantized, as far as the config says.
  bool InBlocks(std::string_view module) const;

 private:
  Matcher() = default;

  const Config* config_ = nullptr;
  std::map<std::string_view, const Entry*> entries_;  // by module
};

}  // namespace prepack::auto_round
