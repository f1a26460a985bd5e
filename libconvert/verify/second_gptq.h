#ifndef PREPACK_VERIFY_SECOND_GPTQ_H_
#define PREPACK_VERIFY_SECOND_GPTQ_H_

// The second path for GPTQ: element by element, straight from the formula
//
//     code[n, k] = bits [b·k, b·k + b) of the words qweight[…, n],  b = 32 · rows of qweight / K
//     z[g, n]    = bits [b·n, b·n + b) of the words qzeros[g, …], + 1 unless gptq_v2;
//                  2^(b − 1) where config.json says sym
//
// for 2, 3, 4 and 8 bits and groups that lie in the natural order.

#include <string>

#include "verify/second_decoder.h"

namespace prepack {

Status DecodeGptqRows(const Checkpoint& source, const std::string& module, uint64_t k, uint64_t n0,
                      uint64_t rows, DecodedRows& out);

}  // namespace prepack

#endif  // PREPACK_VERIFY_SECOND_GPTQ_H_
