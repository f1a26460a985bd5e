// AVX2: 8 by 8 words at a time.

#include <immintrin.h>

#include "kernels/word_transpose.h"

namespace prepack {
namespace {

constexpr size_t kSide = 8;
constexpr size_t kWordBytes = sizeof(uint32_t);

__m256i Load(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

void Store(std::byte* to, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}

// The block whose corner is at `in`. Words trade places over distances of 1, 2 and 4.
void TransposeBlock(const std::byte* in, size_t in_stride, std::byte* out, size_t out_stride) {
  __m256i row[kSide];
  for (size_t i = 0; i < kSide; ++i) row[i] = Load(in + i * in_stride);
  __m256i pair[kSide];  // in each lane: words of two rows, side by side
  for (size_t i = 0; i < kSide; i += 2) {
    pair[i] = _mm256_unpacklo_epi32(row[i], row[i + 1]);
    pair[i + 1] = _mm256_unpackhi_epi32(row[i], row[i + 1]);
  }
  __m256i quad[kSide];  // lane 0: column i of four rows, lane 1: column i + 4
  for (size_t i = 0; i < kSide; i += 4) {
    quad[i] = _mm256_unpacklo_epi64(pair[i], pair[i + 2]);
    quad[i + 1] = _mm256_unpackhi_epi64(pair[i], pair[i + 2]);
    quad[i + 2] = _mm256_unpacklo_epi64(pair[i + 1], pair[i + 3]);
    quad[i + 3] = _mm256_unpackhi_epi64(pair[i + 1], pair[i + 3]);
  }
  for (size_t i = 0; i < 4; ++i) {
    Store(out + i * out_stride, _mm256_permute2x128_si256(quad[i], quad[i + 4], 0x20));
    Store(out + (i + 4) * out_stride, _mm256_permute2x128_si256(quad[i], quad[i + 4], 0x31));
  }
}

}  // namespace

void TransposeWordsAvx2(const std::byte* in, size_t in_stride, size_t rows, size_t cols,
                        std::byte* out, size_t out_stride) {
  const size_t whole_rows = rows / kSide * kSide;
  const size_t whole_cols = cols / kSide * kSide;
  // Along the output first: it is what lies far apart, and its cache lines get filled whole.
  for (size_t c = 0; c < whole_cols; c += kSide) {
    for (size_t r = 0; r < whole_rows; r += kSide) {
      TransposeBlock(in + r * in_stride + c * kWordBytes, in_stride,
                     out + c * out_stride + r * kWordBytes, out_stride);
    }
  }
  TransposeWordsScalar(in + whole_cols * kWordBytes, in_stride, whole_rows, cols - whole_cols,
                       out + whole_cols * out_stride, out_stride);
  TransposeWordsScalar(in + whole_rows * in_stride, in_stride, rows - whole_rows, cols,
                       out + whole_rows * kWordBytes, out_stride);
}

}  // namespace prepack
