#pragma once

// Names that differ only in numbers, as one: `model.layers.{0..31}.mlp.down_proj`.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/inspect/inspect.h"
#include "prepack/inspect/opened_folder.h"
#include "prepack/measure/module_statistics.h"

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
  const StoredTensor* const* like = nullptr;
};

inline std::string_view NameOf(const ModuleSummary& module) {
  return module.module;
}
inline std::string_view NameOf(const StoredTensor* tensor) {
  return tensor->name;
}

std::vector<FoldedTensors> FoldTensors(const InspectReport& report);

// A summary of the numbers of one module, in a checkpoint or a packed folder: all of them are read,
// some output channels at a time.

// Each scale once, also where several output channels share it.
struct ScaleNumbers {
  uint64_t count = 0;
  uint64_t zero = 0;
  uint64_t negative = 0;
  float min = 0;
  float median = 0;  // of an even number: the lower of the two in the middle
  float max = 0;
};

struct ModuleNumbers {
  Scheme scheme;
  uint64_t n = 0;
  uint64_t k = 0;
  bool reordered = false;  // groups are formed over reordered input channels
  float min_weight = 0;    // decoded
  float max_weight = 0;
  // How often each code occurs; none of bf16, which has no codes.
  std::optional<std::array<uint64_t, 256>> codes = {};
  std::optional<ScaleNumbers> scales = {};  // none of bf16
  // How often each occurs, one per output channel and group; none of symmetric schemes.
  std::optional<std::array<uint64_t, 256>> zero_points = {};

  uint64_t groups() const { return CeilDiv(k, scheme.group_size); }
};

// The errors of FindShown and of reading.
Result<ModuleNumbers> MeasureModule(const OpenedFolder& folder, std::string_view module);

}  // namespace prepack
