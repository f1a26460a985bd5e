#ifndef PREPACK_INSPECT_SUMMARY_H_
#define PREPACK_INSPECT_SUMMARY_H_

// What a report of very many modules and tensors comes to.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "inspect/inspect.h"
#include "inspect/name_patterns.h"

namespace prepack {

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
