#ifndef PREPACK_INSPECT_SUMMARY_H_
#define PREPACK_INSPECT_SUMMARY_H_

// Names that differ only in numbers, as one: `model.layers.{0..31}.mlp.down_proj`.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/inspect/inspect.h"

namespace prepack {

// Stands for every combination of the numbers in its braces, and for nothing else.
struct NamePattern {
  // "layers.{0,2..31}.experts.{0..7}.up_proj"; of a single name, that name, braces and all.
  std::string text;
  std::string first;  // of the names, along the depth of the model
  size_t names = 0;
};

// The patterns stand for exactly these names, each of them once; they come in the order of their
// first names along the depth of the model. The names must differ from each other. A name that has
// braces stands for itself. So does a number that is not written as numbers are (007), that has
// more than 18 digits, or that comes after eight others in the name.
std::vector<NamePattern> FoldNames(std::span<const std::string_view> names);

// What a report of very many modules and tensors comes to.

// Modules of one scheme in one layout, whatever their sizes.
struct SchemeUse {
  Scheme scheme;       // of the first of them
  std::string layout;  // empty when not packed
  size_t modules = 0;
  uint64_t weights = 0;
  uint64_t bytes = 0;

  double BitsPerWeight() const;
};

// Most bytes first.
std::vector<SchemeUse> UseOfSchemes(const InspectReport& report);

struct DTypeUse {
  DType dtype = DType::kU8;
  size_t tensors = 0;
  uint64_t bytes = 0;
};

// The tensors that no module of the report is made of, most bytes first.
std::vector<DTypeUse> TensorsOutsideModules(const InspectReport& report);

// Modules that differ in numbers in their names and in nothing else.
struct FoldedModules {
  NamePattern names;
  const ModuleSummary* like = nullptr;  // any of them; the report must live longer
};

// Along the depth of the model.
std::vector<FoldedModules> FoldModules(const InspectReport& report);

struct FoldedTensors {
  NamePattern names;
  const StoredTensor* like = nullptr;
};

std::vector<FoldedTensors> FoldTensors(const InspectReport& report);

}  // namespace prepack

#endif  // PREPACK_INSPECT_SUMMARY_H_
