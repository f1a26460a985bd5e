#ifndef PREPACK_FORMATS_COMPRESSED_TENSORS_CONFIG_H_
#define PREPACK_FORMATS_COMPRESSED_TENSORS_CONFIG_H_

// The quantization_config of a compressed-tensors checkpoint, parsed, checked and normalised:
// keywords in one spelling, presets and defaults filled in, patterns compiled (mirrors
// compressed-tensors 0.19, quantization/quant_config.py: QuantizationConfig).

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/compressed_tensors_args.h"
#include "formats/module_match.h"
#include "formats/quantization_config.h"

namespace prepack {

// Names of storage formats that the reader tells apart.
inline constexpr std::string_view kCtPackQuantized = "pack-quantized";
inline constexpr std::string_view kCtIntQuantized = "int-quantized";
inline constexpr std::string_view kCtFloatQuantized = "float-quantized";
inline constexpr std::string_view kCtNaiveQuantized = "naive-quantized";
inline constexpr std::string_view kCtDense = "dense";

// Of the compressed-tensors release that wrote the config.
struct CtVersion {
  std::array<uint32_t, 3> parts = {};  // major, minor, patch

  friend bool operator==(const CtVersion&, const CtVersion&) = default;
  friend bool operator<(const CtVersion& a, const CtVersion& b) { return a.parts < b.parts; }
};
// Releases that changed what is stored. Asymmetric modules always have their zero points stored
// from the first on, even all-zero ones.
inline constexpr CtVersion kCtZeroPointsAlwaysStored = {{0, 9, 3}};
// Between these two, columns of packed zero points are padded when N fills no whole word.
inline constexpr CtVersion kCtPaddedZeroPointsFrom = {{0, 9, 4}};
inline constexpr CtVersion kCtPaddedZeroPointsUntil = {{0, 11, 0}};
// From this one on, codes of 3, 5, 6 and 7 bits are a dense bit stream.
inline constexpr CtVersion kCtDenseSince = {{0, 18, 0}};
inline constexpr std::array kCtStorageChanges = {kCtZeroPointsAlwaysStored, kCtPaddedZeroPointsFrom,
                                                 kCtPaddedZeroPointsUntil, kCtDenseSince};

// "0.19.0", "0.9.3.dev1", "0.15.1a2"; nullopt when it does not begin with two numbers. What follows
// the third number is ignored.
std::optional<CtVersion> ParseCtVersion(std::string_view text);

// One entry of config_groups.
struct CtGroup {
  std::string name;
  std::string where;    // for errors
  bool preset = false;  // known by the name of a preset only, as before 0.5
  std::vector<ConfigPattern> targets;
  std::optional<CtArgs> weights;  // nullopt: the group leaves weights alone
  std::optional<CtArgs> input_activations;
  std::optional<CtArgs> output_activations;
  std::string format;  // resolved: never empty, "mixed-precision" or "fakequant"
};

struct CtConfig {
  std::string where;                 // "config.json: quantization_config"
  std::optional<CtVersion> version;  // nullopt: absent, as before 0.7 and from AutoRound
  std::string status;                // quantization_status, "" when absent
  bool has_kv_cache_scheme = false;
  // The model was rotated, and the stored weights are those of the rotated model: nothing is left
  // to do at run time.
  bool rotated = false;
  std::vector<CtGroup> groups;  // in the order of the file
  std::vector<ConfigPattern> ignore;
};

// Contradictions are kMalformed; formats, keys and keywords that no known version has, sparsity
// and transforms that run online are kUnsupported.
Result<CtConfig> ParseCtConfig(const QuantizationConfig& config);

}  // namespace prepack

#endif  // PREPACK_FORMATS_COMPRESSED_TENSORS_CONFIG_H_
