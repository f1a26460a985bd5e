#ifndef PREPACK_VERIFY_SECOND_DECODER_FORMATS_H_
#define PREPACK_VERIFY_SECOND_DECODER_FORMATS_H_

// One second decoder per format; second_decoder.h has the contract, and the choice between them.

#include <cstdint>
#include <string>

#include "base/result.h"
#include "container/checkpoint.h"
#include "verify/second_decoder.h"

namespace prepack {

// What is to be decoded: output channels [n0, n0 + rows) of a module with k input channels.
struct SecondRows {
  std::string module;
  uint64_t k = 0;
  uint64_t n0 = 0;
  uint64_t rows = 0;
};

// compressed-tensors, pack-quantized, 4 bits.
Status DecodeCompressedTensors(const Checkpoint& source, const SecondRows& wanted,
                               DecodedRows& out);
// AWQ in the layouts gemm, gemv and gemv_fast, told apart by the shapes.
Status DecodeAwq(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out);
// GPTQ without an index of groups, or with one that keeps the natural order.
Status DecodeGptq(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out);
// AutoRound, in the tensors of GPTQ (without an index of groups) or AWQ.
Status DecodeAutoRound(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out);

}  // namespace prepack

#endif  // PREPACK_VERIFY_SECOND_DECODER_FORMATS_H_
