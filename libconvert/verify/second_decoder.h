#ifndef PREPACK_VERIFY_SECOND_DECODER_H_
#define PREPACK_VERIFY_SECOND_DECODER_H_

// A second, independent path from the source checkpoint to weights. It shares no code with the
// readers in formats/: it takes tensors by their names, works on 32-bit words where the readers
// work on bytes, and knows nothing of schemes. If a reader is wrong, the two disagree, and the GEMM
// level of verify fails although the packed bytes are what the reader delivered.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "container/checkpoint.h"

namespace prepack {

// Weights of output channels [n0, n0 + rows): W[n, k] = (code − zero_point) · scale.
struct DecodedRows {
  std::vector<int16_t> steps;  // code − zero_point, [rows, K]
  std::vector<double> scales;  // [rows, G]
  uint64_t groups = 0;
};

class SecondDecoder {
 public:
  // For modules of the given format; kUnsupported when there is no second decoder for it.
  static Result<SecondDecoder> Make(const Checkpoint& source, const std::string& format);

  // `k` is the number of input channels of the module. Out-of-range rows are an error.
  Status Decode(const std::string& module, uint64_t k, uint64_t n0, uint64_t rows,
                DecodedRows& out) const;

 private:
  using DecodeFn = Status (*)(const Checkpoint& source, const std::string& module, uint64_t k,
                              uint64_t n0, uint64_t rows, DecodedRows& out);

  SecondDecoder(const Checkpoint& source, DecodeFn decode) : source_(&source), decode_(decode) {}

  const Checkpoint* source_;
  DecodeFn decode_;
};

}  // namespace prepack

#endif  // PREPACK_VERIFY_SECOND_DECODER_H_
