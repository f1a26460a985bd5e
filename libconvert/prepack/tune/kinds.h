#ifndef PREPACK_TUNE_KINDS_H_
#define PREPACK_TUNE_KINDS_H_

// The modules of a model by kind: those of the same role in all layers, with weights of as many
// bits. A --scheme option with a pattern can tell kinds apart, so each gets a choice of its own.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/format.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

// Modules of a kind that a kernel computes alike: same sizes, same scheme.
struct TuneShape {
  std::vector<const QuantizedLinear*> modules = {};  // in the order of the layers
  std::vector<const QuantizedLinear*> sample = {};   // those that are packed and multiplied

  const QuantizedLinear& first() const { return *modules.front(); }
};

struct TuneKind {
  std::string role = {};  // "model.layers.#.mlp.up_proj", see RoleOf
  uint32_t bits = 0;
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

// Up to `layers` modules of each shape are its sample: the first and the last of the model among
// them, the others between at equal distances.
TuneKinds KindsOf(const QuantizedModel& model, uint64_t layers);

// The places of `count` of `all` things: first, last, and between.
std::vector<size_t> SpreadOver(size_t all, uint64_t count);

}  // namespace prepack

#endif  // PREPACK_TUNE_KINDS_H_
