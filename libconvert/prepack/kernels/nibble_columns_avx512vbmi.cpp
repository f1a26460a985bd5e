// AVX-512 with VBMI, which permutes all bytes of a register at once: that makes columns of AWQ
// cheaper. The rest is that of AVX-512. Comments as in nibble_columns_avx512.cpp.

#include "prepack/kernels/nibble_columns.h"
#include "prepack/kernels/zmm.h"

namespace prepack {
namespace {

constexpr size_t kChannels = 128;
constexpr size_t kColumns = 8;
constexpr size_t kLaneBytes = 16;
constexpr size_t kWords = kZmmBytes / sizeof(uint32_t);
constexpr size_t kBlocksAhead = 2;  // how far ahead of the work memory is asked for

// (k2 k1; c1 c3 c0 c2) → (c3 c2; c1 c0 k2 k1), bytes of a register
[[gnu::always_inline]] inline __m512i ByChannel(__m512i bytes) {
  alignas(kZmmBytes) static constexpr uint8_t kFrom[kZmmBytes] = {
      0, 16, 32, 48, 2, 18, 34, 50, 8,  24, 40, 56, 10, 26, 42, 58,   // c3 c2 = 0
      1, 17, 33, 49, 3, 19, 35, 51, 9,  25, 41, 57, 11, 27, 43, 59,   // 1
      4, 20, 36, 52, 6, 22, 38, 54, 12, 28, 44, 60, 14, 30, 46, 62,   // 2
      5, 21, 37, 53, 7, 23, 39, 55, 13, 29, 45, 61, 15, 31, 47, 63};  // 3
  return _mm512_permutexvar_epi8(Load(kFrom), bytes);
}

// 128 channels of eight columns.
[[gnu::always_inline]] inline void JoinAwqBlock(const uint8_t* columns, size_t column_stride,
                                                uint32_t* words) {
  for (size_t lane = 0; lane < kZmmBytes / kLaneBytes; ++lane) {  // c6 c5
    const uint8_t* from = columns + lane * kLaneBytes;
    __m512i a = LoadLanes(from, 2 * column_stride);
    __m512i b = LoadLanes(from + column_stride, 2 * column_stride);  // (k0; k2 k1; c4 c3 c0 c2; c1)
    SwapNibbles(a, b);                                               // (c1; …; k0)
    uint32_t* to = words + 2 * lane * kWords;
    Store(to, ByChannel(_mm512_unpacklo_epi64(a, b)));  // (c4; k2 k1; c1 c3 c0 c2; k0)
    Store(to + kWords, ByChannel(_mm512_unpackhi_epi64(a, b)));
  }
}

void Split(const std::byte* words, size_t row_stride, size_t rows, size_t channels,
           uint8_t* columns, size_t column_stride) {
  kNibbleColumnsAvx512.split(words, row_stride, rows, channels, columns, column_stride);
}

void Join(const uint8_t* columns, size_t column_stride, std::span<const uint32_t> picks,
          size_t channels, uint32_t* words, size_t words_stride) {
  kNibbleColumnsAvx512.join(columns, column_stride, picks, channels, words, words_stride);
}

void JoinAwq(const uint8_t* columns, size_t column_stride, size_t rows, size_t channels,
             uint32_t* words, size_t words_stride) {
  const size_t whole = channels / kChannels * kChannels;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t n = 0; n < whole; n += kChannels) {
      const uint8_t* from = columns + r * kColumns * column_stride + ColumnBytes(n);
      for (size_t k = 0; k < kColumns; ++k) {
        // Behind the last column this is somebody else's memory, or none: a hint does no harm.
        __builtin_prefetch(from + (kBlocksAhead * kColumns + k) * column_stride);
      }
      JoinAwqBlock(from, column_stride, words + r * words_stride + n);
    }
  }
  kNibbleColumnsAvx2.join_awq(columns + ColumnBytes(whole), column_stride, rows, channels - whole,
                              words + whole, words_stride);
}

}  // namespace

const NibbleColumnKernels kNibbleColumnsAvx512Vbmi = {Split, Join, JoinAwq};

}  // namespace prepack
