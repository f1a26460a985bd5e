#pragma once

// The modules of a model by kind: those of the same role in all layers, with weights of as many
// bits. A --scheme option with a pattern can tell kinds apart, so each gets a choice of its own.
//
// What a runtime runs as one is of one kind: the experts of a layer and, if a target is measured
// whose runtime fuses them, q, k and v, or gate and up.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

enum class TuneUnitSort : uint8_t {
  kModule,
  kFused,    // modules that read the same input, in the order of their output channels
  kMixture,  // all experts of a layer
};

// What is run once in each layer.
struct TuneUnit {
  std::string name = {};  // of the module; of what they are fused to; of the mixture
  std::vector<const QuantizedLinear*> modules = {};
};

// Units of a kind that a kernel computes alike: same sizes, same scheme.
struct TuneShape {
  std::vector<TuneUnit> units = {};  // in the order of the layers
  // Those that are packed and multiplied; of a mixture some of the experts.
  std::vector<TuneUnit> sample = {};
  uint64_t experts = 0;  // of a mixture
  uint64_t top_k = 0;    // of them, for each token

  const QuantizedLinear& first() const { return *units.front().modules.front(); }
  uint64_t n() const;  // of all modules that are fused
  size_t modules() const;
  uint64_t sampled_weights() const;
};

struct TuneKind {
  std::string role = {};  // "model.layers.#.mlp.up_proj", see RoleOf; of a unit's name
  TuneUnitSort sort = TuneUnitSort::kModule;
  uint32_t bits = 0;
  std::vector<std::string> parts = {};  // of fused modules, the last parts of their names
  std::vector<TuneShape> shapes = {};

  size_t modules() const;
  // The regular expression that finds the modules of the role, and no others: for --scheme.
  std::string Pattern() const;
};

struct TuneKinds {
  std::vector<TuneKind> kinds = {};  // by role
  // Role of modules that are not measured → why.
  std::map<std::string, std::string> left_out = {};
};

struct TuneSampling {
  uint64_t layers = 3;  // of each shape; of a mixture as many experts
  bool fuse = false;    // siblings are one unit
};

// Of the units of each shape, the first and the last of the model are in the sample, and others
// between at equal distances. Errors come from reading the source.
Result<TuneKinds> KindsOf(const Checkpoint& checkpoint, const QuantizedModel& model,
                          const TuneSampling& sampling);

// How many experts each token goes through, as config.json says; 0: it does not say so.
uint64_t ExpertsPerToken(const Json& config);

// The places of `count` of `all` things: first, last, and between.
std::vector<size_t> SpreadOver(size_t all, uint64_t count);

}  // namespace prepack
