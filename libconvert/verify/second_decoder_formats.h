#ifndef PREPACK_VERIFY_SECOND_DECODER_FORMATS_H_
#define PREPACK_VERIFY_SECOND_DECODER_FORMATS_H_

// One second decoder per format; second_decoder.h has the contract, and the choice between them.

#include <cstdint>
#include <string>

#include "base/result.h"
#include "container/checkpoint.h"
#include "verify/second_decoder.h"

namespace prepack {

// What is to be decoded: output channels [n0, n0 + rows) and input channels [k0, k0 + inputs) of a
// module with k input channels. k0 is a multiple of kSecondInputsUnit; inputs is, too, unless they
// reach to the end.
struct SecondRows {
  std::string module;
  uint64_t k = 0;
  uint64_t n0 = 0;
  uint64_t rows = 0;
  uint64_t k0 = 0;
  uint64_t inputs = 0;

  bool whole() const { return inputs == k; }
  bool old_model_free = false;  // of the checkpoint, see second_model_free.h
};

// compressed-tensors and `quant_method: fp8`, which name the same tensors: packed codes of 2 to 8
// bits, signed bytes, or FP8; scales per tensor, channel, group or block; any order of groups.
// Only fp8 has a setting that turns its scales into divisors.
Status DecodeCompressedTensors(const Checkpoint& source, const SecondRows& wanted,
                               DecodedRows& out);
Status DecodeFp8(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out);
// AWQ in the layouts gemm, gemv and gemv_fast, told apart by the shapes.
Status DecodeAwq(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out);
// GPTQ, with or without an index of groups.
Status DecodeGptq(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out);
// AutoRound, in the tensors of GPTQ or AWQ.
Status DecodeAutoRound(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out);

}  // namespace prepack

#endif  // PREPACK_VERIFY_SECOND_DECODER_FORMATS_H_
