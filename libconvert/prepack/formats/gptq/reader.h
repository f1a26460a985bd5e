#ifndef PREPACK_FORMATS_GPTQ_READER_H_
#define PREPACK_FORMATS_GPTQ_READER_H_

// Describes one module that is stored in the tensors of GPTQ (drawn in formats/gptq/linear.h):
// checks that every tensor agrees with the others and with what the config says, from headers,
// g_idx and the first zero point alone. AutoRound stores the same tensors under a config of its
// own.

#include <cstdint>
#include <memory>
#include <string>

#include "prepack/container/checkpoint.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/format.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

// How a zero point z is stored.
enum class GptqZeros : uint8_t {
  kMinusOne,  // as z - 1: "gptq", which is also called v1
  kStored,    // as z: "gptq_v2", "gptq_p"
};

// What the config says of one module.
struct GptqSettings {
  std::string where;         // place of the config, for errors
  uint32_t bits = 4;         // 2, 3, 4, 8; when planar, 2 to 8
  int64_t group_size = 128;  // input channels; -1: all of them
  bool symmetric = true;
  bool act_order = false;  // desc_act; the tensor g_idx decides
  GptqZeros zeros = GptqZeros::kMinusOne;
  // Asymmetric z - 1 where z is 0: what the producer is known to have done. Neither: such zero
  // points are lost, and are refused.
  bool word_borrow = false;  // 2, 4, 8 bits: subtracted from whole words (gptqmodel, auto-round)
  bool field_wrap = false;   // 3 bits: each field by itself (gptqmodel, not auto-round)
  bool planar = false;       // "gptq_p": bit planes; zeros is kStored then
  // AutoRound stores some modules in another width than its config says: take the one that the
  // tensors have, and say so in a finding.
  bool bits_from_tensors = false;
};

// `module` has a tensor qweight. The result refers to the checkpoint. Sound but unsupported input
// is kUnsupported, contradictory or incomplete input is kMalformed. Whether asymmetric zero points
// follow the declared convention is asked of the whole checkpoint, see formats/gptq/zeros.h.
Result<std::unique_ptr<QuantizedLinear>> DescribeGptqModule(const Checkpoint& checkpoint,
                                                            const ModuleTensors& module,
                                                            const GptqSettings& settings,
                                                            FindingTally& findings);

// The format of GPTQModel, AutoGPTQ, optimum, and of AutoRound's export to auto_gptq. The tensors
// of a module are drawn in formats/gptq/linear.h, its zero points in formats/gptq/zeros.h, the
// config is described in formats/gptq/config.h. Which modules are quantized is told by the tensors;
// where the config says otherwise, that is a finding.
//
// Not read: Marlin, BitBLAS, QQQ and EXL3 weights (tiled for GPUs), words of other than 32 bits,
// rotated weights, adapters, embeddings.

Result<QuantizedModel> ReadGptq(const Checkpoint& checkpoint);

}  // namespace prepack

#endif  // PREPACK_FORMATS_GPTQ_READER_H_
