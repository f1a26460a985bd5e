#pragma once

// The tensors of a checkpoint as llama.cpp's converter is to see them: as if the model had never
// been quantized. A source is a matrix of rows [N, K], which a GGUF tensor takes whole.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/gguf/expert_stacks.h"
#include "prepack/formats/format.h"
#include "prepack/gguf/ggml_types.h"
#include "prepack/model/quantized_linear.h"
#include "prepack/packed/split_experts.h"

namespace prepack::gguf {

struct Source {
  std::string name;  // "model.layers.0.mlp.down_proj.weight"
  // One module, or the experts of a stack, which have equally many output channels each.
  std::vector<const QuantizedLinear*> modules = {};
  const StoredTensor* plain = nullptr;  // a tensor that is not quantized; then there are no modules
  bool transposed = false;              // an unquantized model stores experts [E, K, N]
  // As ChooseTypes finds them (types.h): the types that hold its codes, in order of preference, and
  // why not a smaller one. None: no type does.
  std::vector<GgmlType> types = {};
  std::string why = {};

  uint64_t rows_of_module() const { return modules.front()->n(); }
  uint64_t rows() const;
  uint64_t columns() const;
};

// Why no type holds a module, and what it becomes.
struct NotHeld {
  std::string why;
  GgmlType type = GgmlType::kBF16;
};

struct Sources {
  SplitModules split;               // that sources refer to
  std::vector<Source> sources;      // those of codes first
  std::vector<ExpertStack> stacks;  // what the converter sees in place of some of them
  std::map<std::string, NotHeld, std::less<>> not_held;  // by module; see ChooseTypes
  std::vector<std::string> left_out;  // tensors that llama.cpp has no use for: scales of caches
};

// Checkpoint and model must outlive the result. kMalformed for experts that are
// incomplete.
Result<Sources> FindSources(const Checkpoint& checkpoint, const QuantizedModel& model);

}  // namespace prepack::gguf
