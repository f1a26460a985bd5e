#ifndef PREPACK_FORMATS_COMPRESSED_TENSORS_H_
#define PREPACK_FORMATS_COMPRESSED_TENSORS_H_

// compressed-tensors checkpoints, as llm-compressor writes them (mirrors compressed-tensors 0.19,
// compressors/ and utils/match.py).
//
// Read: `pack-quantized`, 4 bits, symmetric and asymmetric, one scale per group or per channel.
//
//     MODULE.weight_packed      I32 [N, ⌈K/8⌉]  eight codes per word along K, lowest bits first;
//                                               code = signed value + 8
//     MODULE.weight_scale       BF16, F16 or F32 [N, G]
//     MODULE.weight_zero_point  I32 [⌈N/8⌉, G]  eight zero points per word, down the rows, + 8;
//                               before 0.9.4: I8 [N, G], signed
//     MODULE.weight_shape       I64 [2]         N, K
//
// N = 4, K = 16 with codes 0 … 15 in row 0 begins with the bytes 10 32 54 76 98 ba dc fe.
//
// Every other format and scheme is recognised and refused by name (kUnsupported). The tensors that
// exist decide what a module is, and the configuration says what they mean: `ignore` lists are
// often wrong about names. Where the two contradict each other so that the meaning is open, the
// checkpoint is kMalformed; where the tensors settle it, the contradiction is a Finding.

#include "formats/format.h"

namespace prepack {

Result<QuantizedModel> ReadCompressedTensors(const Checkpoint& checkpoint);

}  // namespace prepack

#endif  // PREPACK_FORMATS_COMPRESSED_TENSORS_H_
