#ifndef PREPACK_VERIFY_SECOND_GPTQ_TENSORS_H_
#define PREPACK_VERIFY_SECOND_GPTQ_TENSORS_H_

// The second path for GPTQ's tensors, which AutoRound stores, too: bit by bit, straight from the
// formula
//
//     code[n, k] = bits [b·k, b·k + b) of the words qweight[…, n],  b = 32 · rows of qweight / K
//     z[g, n]    = bits [b·n, b·n + b) of the words qzeros[g, …], + 1 where z − 1 is stored;
//                  2^(b − 1) where the scheme is symmetric
//
// Where some modules are symmetric and others are not, qzeros says z of both: writers store 2^(b −
// 1) there, too. Fields that are 2^(b − 1) − 1 throughout, where z is stored, are those of a
// symmetric module whose writer stored z − 1.
//
// g is that of g_idx, or k / group size. A stored −1 borrows from the fields above it in its word;
// fields of 3 bits cross words and wrap one by one.
//
// Fields of 5, 6 and 7 bits lie in planes (second_fields.h), and so do those of 3 bits in the
// format gptq_p; z is stored as it is there.

#include "verify/second_decoder_formats.h"

namespace prepack {

// What the config says of zero points, and of how fields lie.
struct SecondGptqMeaning {
  bool symmetric = true;  // every module is
  bool minus_one = true;
  bool planes = false;  // fields of 3 bits lie in planes
};

Status DecodeGptqTensors(const Checkpoint& source, const SecondRows& wanted,
                         const SecondGptqMeaning& meaning, DecodedRows& out);

}  // namespace prepack

#endif  // PREPACK_VERIFY_SECOND_GPTQ_TENSORS_H_
