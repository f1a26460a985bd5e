#pragma once

// The quantization_config of `quant_method: fp8`, `fbgemm_fp8` and `mxfp8`; reader.cpp says what is
// stored.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/fp8/module.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/regex.h"

namespace prepack::fp8 {

// A rule of GPTQModel's `dynamic`: the first whose expression matches the start of a module's name
// counts.
struct Rule {
  std::string text;
  ModuleRegex regex;
  bool exclude = false;  // "-:": the module is not quantized
  bool has_block = false;
  Block block = std::nullopt;
};

struct Config {
  enum class Activations : uint8_t { kNone, kDynamic, kStatic };

  std::string where;
  Activations activations = Activations::kDynamic;
  Block block;                       // weight_block_size
  bool scale_divides = false;        // weight_scale_semantics "inverse"
  bool byte_exponents = false;       // scale_fmt "ue8m0": scales of dtype U8 are exponents
  bool mx = false;                   // `mxfp8`: exponents for groups of 32
  std::vector<std::string> ignored;  // names of modules
  // Embeddings that are FP8, too, by how their names end (transformers' modules_to_convert).
  std::vector<std::string> embeddings;
  std::vector<Rule> rules;

  // Is it a scale that is an exponent?
  bool IsExponent(const StoredTensor& scale) const;
  // What it says of a module; an error when a rule takes too long to match.
  Result<Meaning> MeaningOf(std::string_view module, const StoredTensor& scale) const;
  // Does the config name the module as an embedding?
  bool NamesEmbedding(std::string_view module) const;
  // Does the config want the module left as it is?
  Result<bool> Excludes(std::string_view module) const;

 private:
  Result<const Rule*> RuleOf(std::string_view module) const;
};

// The config, which all copies of it agree on; copies that differ in what the weights mean are
// kMalformed.
Result<Config> ParseConfigs(std::span<const QuantizationConfig> declared);

}  // namespace prepack::fp8
