#pragma once

// What prepack does not read, and refuses by name: other methods, checkpoints without a
// declaration, and modules that another method stored.

#include <span>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/formats/module_tensors.h"

namespace prepack {

// Checkpoints whose config.json has no declaration that is read, and which are quantized all the
// same:
//
//     tensors gptq_bits, gptq_groupsize   text-generation-inference (formats/gptq/declaration.h)
//     hf_quant_config.json                NVIDIA's ModelOpt, but without what it declares
//     config.json: quantization           Apple's MLX; a copy stands under quantization_config
//     MODULE.qweight and so on         the declaration was lost, as by saving config.json anew

// Refuses any of them by name, and says of others that they are not quantized.
Status RefuseUndeclared(const Checkpoint& checkpoint);

// config.json is one of MLX.
bool IsMlx(const Checkpoint& checkpoint);
// kUnsupported for such a one; `where` is the place of the declaration.
Status RefuseMlx(std::string_view where);

// Quantization methods that are known and not read: refused by name, with what to do instead.

// kUnsupported for any method; a known one is named properly. `where` is the place of the
// declaration, `known` what is read instead.
Status RefuseMethod(std::string_view method, std::string_view where, std::string_view known);

// Adds an error for every module that holds quantized weights, or scales without weights, and that
// the reader of the declared format neither described nor complained about. Such a module would
// pass through as if it were not quantized, in bytes that nobody can read. It is "module-foreign"
// where the tensors are those of another format, also in a module that was described; and
// "storage-unsupported" where codes and scales lie under names that writers use and that are not
// read, such as experts stacked in one tensor.
//
// Other matrices of FP8, of 4-bit floats or of bytes, which have no scale beside them, are a
// finding ("tensor-stays-quantized"): they pass through. `modules` are all of the checkpoint's.
void ReportForeignModules(const Checkpoint& checkpoint, std::span<const ModuleTensors> modules,
                          QuantizedModel& model);

}  // namespace prepack
