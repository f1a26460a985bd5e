#ifndef PREPACK_FORMATS_MODULE_TENSORS_H_
#define PREPACK_FORMATS_MODULE_TENSORS_H_

// The tensors of a checkpoint, module by module: MODULE.SUFFIX, whichever shards they lie in.

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "container/checkpoint.h"

namespace prepack {

// Views into the checkpoint, which must live longer.
struct ModuleTensors {
  std::string_view name;  // "" for tensors without a dot
  std::vector<std::pair<std::string_view, const StoredTensor*>> tensors;  // suffix, ascending

  // The tensor of that suffix, or nullptr.
  const StoredTensor* Find(std::string_view suffix) const;
};

// All modules, ascending by name.
std::vector<ModuleTensors> GroupByModule(const Checkpoint& checkpoint);

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

}  // namespace prepack

#endif  // PREPACK_FORMATS_MODULE_TENSORS_H_
