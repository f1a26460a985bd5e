#pragma once

// The bodies of the kernels of awq.h.
//
// Comments on gemv_fast give the place of a nibble as the bits of its index: r2 r1 r0 number the
// 16-bit numbers of a run, i1 i0 the nibbles in one, and c two vectors of chunks. A place is
// (register; byte in the lane; half); a lane is a run.

namespace prepack::PREPACK_LEVEL {

#ifdef PREPACK_SCALAR

namespace {

// Four of the 16-bit numbers of a run as one: a 4 × 4 matrix of nibbles, row r in bits 16·r ….
uint64_t LoadQuarter(const uint8_t* bytes) {
  uint64_t value = 0;
  for (unsigned i = 0; i < 8; ++i) value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

// Transposes that matrix: first inside its 2 × 2 blocks, then the blocks.
uint64_t TransposeQuarter(uint64_t x) {
  const uint64_t inner = (x ^ (x >> 12)) & 0x0000F0F00000F0F0U;
  x ^= inner ^ (inner << 12);
  const uint64_t outer = (x ^ (x >> 24)) & 0x00000000FF00FF00U;
  return x ^ outer ^ (outer << 24);
}

template <uint32_t (&kWord)(uint32_t)>
void ChangeWords(const uint8_t* columns, size_t column_stride, size_t cols, size_t channels,
                 uint8_t* out, size_t out_stride) {
  const size_t bytes = channels / 2;
  for (size_t col = 0; col < cols; ++col) {
    for (size_t i = 0; i < bytes; i += sizeof(uint32_t)) {
      uint32_t word = 0;
      std::memcpy(&word, columns + col * column_stride + i, sizeof word);
      word = kWord(word);
      std::memcpy(out + col * out_stride + i, &word, sizeof word);
    }
  }
}

}  // namespace

void OrderAwqColumns(const uint8_t* columns, size_t column_stride, size_t cols, size_t channels,
                     uint8_t* out, size_t out_stride) {
  ChangeWords<AwqWordInOrder>(columns, column_stride, cols, channels, out, out_stride);
}

void DisorderAwqColumns(const uint8_t* columns, size_t column_stride, size_t cols, size_t channels,
                        uint8_t* out, size_t out_stride) {
  ChangeWords<AwqWordFromOrder>(columns, column_stride, cols, channels, out, out_stride);
}

void UnpackGemvFast(const uint8_t* stored, size_t chunks, uint8_t* unpacked) {
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    for (size_t run = 0; run < 2; ++run) {
      const uint8_t* from = stored + chunk * kGemvFastChunkBytes + run * 16;
      uint8_t* to = unpacked + chunk * kGemvFastRowBytes + run * 16;
      const uint64_t lower = TransposeQuarter(LoadQuarter(from));      // numbers 0 … 3
      const uint64_t upper = TransposeQuarter(LoadQuarter(from + 8));  // numbers 4 … 7
      // Nibble i of the numbers: inputs 8·i …, four from each half.
      for (size_t i = 0; i < 4; ++i) {
        to[4 * i] = static_cast<uint8_t>(lower >> (16 * i));
        to[4 * i + 1] = static_cast<uint8_t>(lower >> (16 * i + 8));
        to[4 * i + 2] = static_cast<uint8_t>(upper >> (16 * i));
        to[4 * i + 3] = static_cast<uint8_t>(upper >> (16 * i + 8));
      }
    }
  }
}

#else

namespace {

#ifndef PREPACK_AVX512  // where chunks would have to be put together: a quarter slower

constexpr size_t kChunks = kVectorBytes / kGemvFastRowBytes;  // of a register

// (c; r2 r1 r0 i1; i0) → (c; i1 i0 r2 r1; r0)
[[gnu::always_inline]] inline void TransposeRuns(Vector& first, Vector& second) {
  const Vector gather = Repeat(LaneOf<0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15>());
  first = ShuffleBytes(first, gather);  // (c; r0 i1 r2 r1; i0)
  second = ShuffleBytes(second, gather);
  Vector even = UnpackLow<8>(first, second);  // (r0; c i1 r2 r1; i0)
  Vector odd = UnpackHigh<8>(first, second);
  SwapNibbles(even, odd);  // (i0; c i1 r2 r1; r0)
  first = UnpackLow<4>(even, odd);
  second = UnpackHigh<4>(even, odd);
}

#endif

// How many input channels ahead of the work memory is asked for: where they lie far apart, no
// hardware foresees them.
constexpr size_t kColsAhead = 8;

// Exchanges the bytes in the middle of each word:
// c7 c5 c3 c1 c6 c4 c2 c0 ⇄ c7 c5 c6 c4 c3 c1 c2 c0.
[[gnu::always_inline]] inline Vector SwapMiddleBytes(Vector words) {
  return ShuffleBytes(words,
                      Repeat(LaneOf<0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15>()));
}

// Exchanges the nibbles in the middle of each 16 bits: c3 c1 c2 c0 ⇄ c3 c2 c1 c0.
[[gnu::always_inline]] inline Vector SwapMiddleNibbles(Vector numbers) {
  const Vector moved = And(Xor(numbers, ShiftRight<4>(numbers)), Numbers(0x00F0));
  return Xor(Xor(numbers, moved), ShiftLeft<4>(moved));
}

struct InOrder {
  [[gnu::always_inline]] static Vector Of(Vector words) {
    return SwapMiddleNibbles(SwapMiddleBytes(words));
  }
};

struct FromOrder {
  [[gnu::always_inline]] static Vector Of(Vector words) {
    return SwapMiddleBytes(SwapMiddleNibbles(words));
  }
};

// The whole registers of each input channel, and then what is left by the level below.
template <typename Order>
void ChangeColumns(OrderAwqColumnsFn& below, const uint8_t* columns, size_t column_stride,
                   size_t cols, size_t channels, uint8_t* out, size_t out_stride) {
  const size_t bytes = channels / 2 / kVectorBytes * kVectorBytes;
  for (size_t col = 0; col < cols; ++col) {
    const uint8_t* from = columns + col * column_stride;
    uint8_t* to = out + col * out_stride;
    PrefetchRows(from + kColsAhead * column_stride, 0, 1, bytes);
    for (size_t i = 0; i < bytes; i += kVectorBytes) Store(to + i, Order::Of(Load(from + i)));
  }
  if (2 * bytes == channels) return;
  below(columns + bytes, column_stride, cols, channels - 2 * bytes, out + bytes, out_stride);
}

}  // namespace

void OrderAwqColumns(const uint8_t* columns, size_t column_stride, size_t cols, size_t channels,
                     uint8_t* out, size_t out_stride) {
  ChangeColumns<InOrder>(*Below().order_awq_columns, columns, column_stride, cols, channels, out,
                         out_stride);
}

void DisorderAwqColumns(const uint8_t* columns, size_t column_stride, size_t cols, size_t channels,
                        uint8_t* out, size_t out_stride) {
  ChangeColumns<FromOrder>(*Below().disorder_awq_columns, columns, column_stride, cols, channels,
                           out, out_stride);
}

#ifndef PREPACK_AVX512

void UnpackGemvFast(const uint8_t* stored, size_t chunks, uint8_t* unpacked) {
  for (; chunks >= 2 * kChunks; chunks -= 2 * kChunks) {
    Vector first = Load(stored);
    Vector second = Load(stored + kChunks * kGemvFastChunkBytes);
    TransposeRuns(first, second);
    Store(unpacked, first);
    Store(unpacked + kVectorBytes, second);
    stored += 2 * kChunks * kGemvFastChunkBytes;
    unpacked += 2 * kVectorBytes;
  }
  if (chunks > 0) Below().unpack_gemv_fast(stored, chunks, unpacked);
}

#endif

#endif

}  // namespace prepack::PREPACK_LEVEL
