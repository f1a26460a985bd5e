#ifndef PREPACK_CONTAINER_TENSOR_NAMES_H_
#define PREPACK_CONTAINER_TENSOR_NAMES_H_

#include <span>
#include <string_view>

#include "base/status.h"
#include "container/safetensors.h"

namespace prepack {

// kMalformed when two tensors of a header have the same name. `where` names the file.
Status CheckNamesDiffer(std::span<const TensorInfo> tensors, std::string_view where);

}  // namespace prepack

#endif  // PREPACK_CONTAINER_TENSOR_NAMES_H_
