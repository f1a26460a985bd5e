#pragma once

// The tensors of a checkpoint, module by module: MODULE.SUFFIX, whichever shards they lie in.

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/format.h"

namespace prepack {

// Suffix and tensor.
using NamedTensor = std::pair<std::string_view, const StoredTensor*>;

// Views into the checkpoint, which must live longer.
struct ModuleTensors {
  std::string_view name;                 // "" for tensors without a dot
  std::span<const NamedTensor> tensors;  // ascending by suffix

  // The tensor of that suffix, or nullptr.
  const StoredTensor* Find(std::string_view suffix) const;
};

// All modules of a checkpoint. Two lists, however many they are, and not one for each of them.
struct GroupedTensors {
  std::vector<NamedTensor> tensors;    // what the modules are views of
  std::vector<ModuleTensors> modules;  // ascending by name
};

GroupedTensors GroupByModule(const Checkpoint& checkpoint);

// Is it the output head? "lm_head", also "language_model.lm_head" of multimodal models.
bool IsOutputHead(std::string_view module);

// "[4, 8]", for errors.
std::string ShowShape(std::span<const uint64_t> shape);

// kMalformed unless the tensor has one of the dtypes. `what` names the values: "the scales".
Status RequireDType(const Checkpoint& checkpoint, const StoredTensor& tensor, std::string_view what,
                    std::initializer_list<DType> allowed);
// kMalformed unless the tensor has the shape. `why` says where the shape follows from:
// "it follows from qweight".
Status RequireShape(const Checkpoint& checkpoint, const StoredTensor& tensor,
                    std::span<const uint64_t> expected, std::string_view why);

// Linear layers in floating point that the config wants quantized.
//
// Configs speak of a whole model, and quantizers work through some of its lists of layers: the
// decoder, rarely a vision or audio tower. A config that does not exclude the tower all the same
// is how GPTQModel writes every multimodal model. So a plain layer is a surprise only where other
// layers of its list were quantized.

class PlainModules {
 public:
  // Views into the checkpoint, and a literal.
  void Add(std::string_view module, std::string_view message) {
    modules_.emplace_back(module, message);
  }

  // Reports those in whose list of layers a module is quantized. What lies in no list (projectors,
  // pooling heads) counts as one list; the output head is left out, which is declared by itself.
  void Report(const QuantizedModel& model, FindingTally& findings) const;

 private:
  std::vector<std::pair<std::string_view, std::string_view>> modules_;
};

// kMalformed ("nothing-quantized") for a model in which the reader found neither modules nor errors
// although the config, at `where`, declares `weights` ("quantized", "FP8") weights; `expected` says
// which tensors they would be.
Status RequireModules(const QuantizedModel& model, std::string_view where,
                      std::string_view expected, std::string_view weights = "quantized");

}  // namespace prepack
