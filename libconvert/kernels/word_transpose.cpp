// The scalar twin, which the others are compared with, and the choice between them.

#include "kernels/word_transpose.h"

#include <cstring>

namespace prepack {
namespace {

constexpr size_t kWordBytes = sizeof(uint32_t);

}  // namespace

void TransposeWordsScalar(const std::byte* in, size_t in_stride, size_t rows, size_t cols,
                          std::byte* out, size_t out_stride) {
  for (size_t c = 0; c < cols; ++c) {
    for (size_t r = 0; r < rows; ++r) {
      std::memcpy(out + c * out_stride + r * kWordBytes, in + r * in_stride + c * kWordBytes,
                  kWordBytes);
    }
  }
}

TransposeWordsFn TransposeWordsFor(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return TransposeWordsScalar;
    case Isa::kAvx2:
      return TransposeWordsAvx2;
  }
  return TransposeWordsScalar;
}

}  // namespace prepack
