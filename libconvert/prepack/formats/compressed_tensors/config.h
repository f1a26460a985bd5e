#pragma once

// How one group of modules quantizes its weights, or their inputs (mirrors compressed-tensors
// 0.19, quantization/quant_args.py: QuantizationArgs, and quant_scheme.py: PRESET_SCHEMES).

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/formats/module_match.h"
#include "prepack/formats/quantization_config.h"

namespace prepack::ct {

inline constexpr uint64_t kMxGroup = 32;     // input channels per scale of MXFP4 and MXFP8
inline constexpr uint64_t kNvfp4Group = 16;  // of NVFP4

enum class Type : uint8_t { kInt, kFloat };
enum class Strategy : uint8_t {
  kTensor,
  kChannel,
  kGroup,
  kBlock,
  kToken,
  kTensorGroup,
  kAttentionHead,
};
enum class Dynamic : uint8_t { kNo, kYes, kLocal };
// kWeight only changed the order of calibration and leaves no trace in the files.
enum class ActOrder : uint8_t { kNone, kWeight, kGroup };

struct Args {
  uint32_t num_bits = 8;
  Type type = Type::kInt;
  bool symmetric = true;
  Strategy strategy = Strategy::kTensor;
  uint64_t group_size = 0;             // kGroup and kTensorGroup, else 0
  std::array<uint64_t, 2> block = {};  // kBlock: rows, columns
  Dynamic dynamic = Dynamic::kNo;
  ActOrder actorder = ActOrder::kNone;

  friend bool operator==(const Args&, const Args&) = default;
};

enum class Role : uint8_t { kWeights, kActivations };

// Parses and checks one QuantizationArgs object. Values that contradict each other are kMalformed;
// keys and keywords that no known version has are kUnsupported.
Result<Args> ParseArgs(const Json& args, Role role, std::string_view where);

// What the preset of a list-valued config group (before 0.5) stands for.
struct Preset {
  Args weights;
  std::optional<Args> input_activations;
};
// By name in any case; nullopt for one that is not known.
std::optional<Preset> FindPreset(std::string_view name);

std::string_view StrategyName(Strategy strategy);
// For people: "4-bit int group 128 asymmetric".
std::string DescribeArgs(const Args& args);

// The quantization_config of a compressed-tensors checkpoint, parsed, checked and normalised:
// keywords in one spelling, presets and defaults filled in, patterns compiled (mirrors
// compressed-tensors 0.19, quantization/quant_config.py: QuantizationConfig).

// Names of storage formats that the reader tells apart.
inline constexpr std::string_view kCtPackQuantized = "pack-quantized";
inline constexpr std::string_view kCtIntQuantized = "int-quantized";
inline constexpr std::string_view kCtFloatQuantized = "float-quantized";
inline constexpr std::string_view kCtNaiveQuantized = "naive-quantized";
inline constexpr std::string_view kCtMxfp4 = "mxfp4-pack-quantized";
inline constexpr std::string_view kCtNvfp4 = "nvfp4-pack-quantized";
inline constexpr std::string_view kCtNvfp4E5m3 = "nvfp4-e5m3-pack-quantized";
inline constexpr std::string_view kCtMxfp8 = "mxfp8-quantized";
inline constexpr std::string_view kCtDense = "dense";

// Of the compressed-tensors release that wrote the config.
struct Version {
  std::array<uint32_t, 3> parts = {};  // major, minor, patch

  friend bool operator==(const Version&, const Version&) = default;
  friend bool operator<(const Version& a, const Version& b) { return a.parts < b.parts; }
};
// Releases that changed what is stored. Asymmetric modules always have their zero points stored
// from the first on, even all-zero ones.
inline constexpr Version kCtZeroPointsAlwaysStored = {{0, 9, 3}};
// Between these two, columns of packed zero points are padded when N fills no whole word.
inline constexpr Version kCtPaddedZeroPointsFrom = {{0, 9, 4}};
inline constexpr Version kCtPaddedZeroPointsUntil = {{0, 11, 0}};
// From this one on, codes of 3, 5, 6 and 7 bits are a dense bit stream.
inline constexpr Version kCtDenseSince = {{0, 18, 0}};
inline constexpr std::array kCtStorageChanges = {kCtZeroPointsAlwaysStored, kCtPaddedZeroPointsFrom,
                                                 kCtPaddedZeroPointsUntil, kCtDenseSince};

// "0.19.0", "0.9.3.dev1", "0.15.1a2"; nullopt when it does not begin with two numbers. What follows
// the third number is ignored.
std::optional<Version> ParseVersion(std::string_view text);

// One entry of config_groups.
struct Group {
  std::string name;
  std::string where;    // for errors
  bool preset = false;  // known by the name of a preset only, as before 0.5
  std::vector<ConfigPattern> targets;
  std::optional<Args> weights;  // nullopt: the group leaves weights alone
  std::optional<Args> input_activations;
  std::optional<Args> output_activations;
  std::string format;  // resolved: never empty, "mixed-precision" or "fakequant"
};

struct Config {
  std::string where;               // "config.json: quantization_config"
  std::optional<Version> version;  // nullopt: absent, as before 0.7 and from AutoRound
  std::string status;              // quantization_status, "" when absent
  bool has_kv_cache_scheme = false;
  // The model was rotated, and the stored weights are those of the rotated model: nothing is left
  // to do at run time.
  bool rotated = false;
  std::vector<Group> groups;  // in the order of the file
  std::vector<ConfigPattern> ignore;
};

// Contradictions are kMalformed; formats, keys and keywords that no known version has, sparsity
// and transforms that run online are kUnsupported.
Result<Config> ParseConfig(const QuantizationConfig& config);

// Parses the first of `configs`, which is not empty, and compares the copies with it. Copies that
// differ in what the weights mean (config groups, storage formats, a version on the other side of a
// change of the packing) are kMalformed ("config-conflict"). Ignore lists may differ: the tensors
// win over them anyway. A version that only a copy has is taken from there.
Result<Config> ParseConfigs(std::span<const QuantizationConfig> configs);

// Which config group describes a module (mirrors compressed-tensors 0.19, utils/match.py).
//
// The quantizer's rule is the truth: exact names win over regular expressions, these win over
// class names, and inside one kind the target that comes first in the alphabet wins. vLLM 0.32
// (utils/config_utils.py) takes names and expressions in the order of the config instead; where
// that selects another scheme, the user should know.

class Matcher {
 public:
  // Refers to `config`, which must live longer.
  explicit Matcher(const Config& config);

  // The group of a module, or nullptr; the ignore list is not consulted. Here and below, an error
  // is that of a regular expression which takes too long.
  Result<const Group*> GroupOf(std::string_view module, ModuleClass module_class) const;
  // The same by vLLM's order.
  Result<const Group*> GroupOfVllm(std::string_view module, ModuleClass module_class) const;
  Result<bool> Ignored(std::string_view module, ModuleClass module_class) const;

 private:
  struct Target {
    const ConfigPattern* pattern;
    const Group* group;
  };

  // The first that matches, or nullptr.
  static Result<const Group*> GroupByName(std::span<const Target> targets, std::string_view module);
  static const Group* GroupByClass(std::span<const Target> targets, ModuleClass module_class);

  std::vector<Target> targets_;  // in the order of the config, each text once
  std::unordered_map<std::string_view, const Group*> names_;
  std::vector<Target> regexes_;  // alphabetical
  std::vector<Target> classes_;  // alphabetical
  std::unordered_set<std::string_view> ignored_names_;
  std::vector<const ConfigPattern*> ignored_regexes_;
  std::vector<const ConfigPattern*> ignored_classes_;
};

}  // namespace prepack::ct
