#ifndef PREPACK_KERNELS_AWQ_BODY_H_
#define PREPACK_KERNELS_AWQ_BODY_H_

// The bodies of the kernel of awq.h.
//
// Comments give the place of a nibble as the bits of its index: r2 r1 r0 number the 16-bit numbers
// of a run, i1 i0 the nibbles in one, and c two vectors of chunks. A place is (register; byte in
// the lane; half); a lane is a run.

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

}  // namespace

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

constexpr size_t kChunks = kVectorBytes / kGemvFastRowBytes;  // of a register

// One channel of so many chunks.
[[gnu::always_inline]] inline Vector LoadChunks(const uint8_t* stored) {
#ifdef PREPACK_AVX512
  return LoadHalves(stored, stored + kGemvFastChunkBytes);
#else
  return Load(stored);
#endif
}

// (c; r2 r1 r0 i1; i0) → (c; i1 i0 r2 r1; r0)
[[gnu::always_inline]] inline void TransposeRuns(Vector& first, Vector& second) {
  const Vector gather = Repeat(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  first = ShuffleBytes(first, gather);  // (c; r0 i1 r2 r1; i0)
  second = ShuffleBytes(second, gather);
  Vector even = UnpackLow<8>(first, second);  // (r0; c i1 r2 r1; i0)
  Vector odd = UnpackHigh<8>(first, second);
  SwapNibbles(even, odd);  // (i0; c i1 r2 r1; r0)
  first = UnpackLow<4>(even, odd);
  second = UnpackHigh<4>(even, odd);
}

}  // namespace

void UnpackGemvFast(const uint8_t* stored, size_t chunks, uint8_t* unpacked) {
  for (; chunks >= 2 * kChunks; chunks -= 2 * kChunks) {
    Vector first = LoadChunks(stored);
    Vector second = LoadChunks(stored + kChunks * kGemvFastChunkBytes);
    TransposeRuns(first, second);
    Store(unpacked, first);
    Store(unpacked + kVectorBytes, second);
    stored += 2 * kChunks * kGemvFastChunkBytes;
    unpacked += 2 * kVectorBytes;
  }
  if (chunks > 0) Below().unpack_gemv_fast(stored, chunks, unpacked);
}

#endif

}  // namespace prepack::PREPACK_LEVEL

#endif  // PREPACK_KERNELS_AWQ_BODY_H_
