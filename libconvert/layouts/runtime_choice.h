#ifndef PREPACK_LAYOUTS_RUNTIME_CHOICE_H_
#define PREPACK_LAYOUTS_RUNTIME_CHOICE_H_

// What the runtime itself would do with the unpacked checkpoint, so that nobody compares apples
// with pears: vLLM picks its kernel by the CPU, and on some the kernel quantizes activations that
// the checkpoint does not. Mirrors vLLM 0.32.0 with its default VLLM_CPU_INT4_W4A8=1:
// vllm/model_executor/kernels/linear/{mixed_precision,scaled_mm}/{cpu,zentorch}.py.

#include <string_view>
#include <vector>

#include "layouts/layout.h"

namespace prepack {

struct RuntimeChoice {
  std::string_view cpu;     // "AMX"
  std::string_view kernel;  // "vllm-cpu/int4-w4a8", or what runs where no layout is named
  std::string_view remark;  // "8-bit activations although the checkpoint says 16"; may be empty

  friend bool operator==(const RuntimeChoice&, const RuntimeChoice&) = default;
};

// For a module with the scheme of the source (not that of the request), stored in `format`. Empty
// for a target whose runtime loads no such checkpoints.
std::vector<RuntimeChoice> RuntimeChoices(std::string_view target, std::string_view format,
                                          const Scheme& source, DType activation_dtype,
                                          bool reordered);

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_RUNTIME_CHOICE_H_
