#include "prepack/kernels/codes.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace prepack {

namespace {

// `count` (at most 8) bytes as a little-endian number.
uint64_t LoadLittle(const uint8_t* bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

void StoreLittle(uint64_t value, size_t count, uint8_t* bytes) {
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
}

// The lowest `ones` bits of every `period`.
constexpr uint64_t Mask(unsigned ones, unsigned period) {
  uint64_t mask = 0;
  for (unsigned bit = 0; bit < 64; ++bit) {
    if (bit % period < ones) mask |= uint64_t{1} << bit;
  }
  return mask;
}

// Eight fields of kBits, side by side, to eight fields kTo apart (kTo 4 or 8).
template <unsigned kBits, unsigned kTo>
uint64_t Spread8(uint64_t fields) {
  // Halves of four fields, then pairs, then single fields.
  constexpr uint64_t kFour = Mask(4 * kBits, 64);
  constexpr uint64_t kTwo = Mask(2 * kBits, 4 * kTo);
  constexpr uint64_t kOne = Mask(kBits, 2 * kTo);
  fields = (fields & kFour) | ((fields >> (4 * kBits)) & kFour) << (4 * kTo);
  fields = (fields & kTwo) | ((fields >> (2 * kBits)) & kTwo) << (2 * kTo);
  return (fields & kOne) | ((fields >> kBits) & kOne) << kTo;
}

template <unsigned kBits, unsigned kTo>
void Unpack(const uint8_t* stream, size_t count, uint8_t* out) {
  size_t left = DenseBytes(kBits, count);
  // Eight bytes are loaded although kBits of them count: the masks drop the others.
  for (; left >= 8 && count >= 8; count -= 8, left -= kBits) {
    uint64_t fields = 0;
    std::memcpy(&fields, stream, 8);
    fields = Spread8<kBits, kTo>(fields);
    std::memcpy(out, &fields, kTo);
    stream += kBits;
    out += kTo;
  }
  while (count > 0) {
    const size_t codes = std::min<size_t>(count, 8);
    const uint64_t used = (uint64_t{1} << (codes * kBits)) - 1;
    const uint64_t fields = LoadLittle(stream, DenseBytes(kBits, codes)) & used;
    StoreLittle(Spread8<kBits, kTo>(fields), DenseBytes(kTo, codes), out);
    stream += kBits;
    out += kTo;
    count -= codes;
  }
}

// Codes of 2 bits: every byte becomes two, a loop that the compiler vectorises.
void UnpackPairs(const uint8_t* stream, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count / 4; ++i) {
    const unsigned four = stream[i];
    out[2 * i] = static_cast<uint8_t>((four & 3U) | (four & 12U) << 2);
    out[2 * i + 1] = static_cast<uint8_t>((four >> 4 & 3U) | (four >> 2 & 0x30U));
  }
  Unpack<2, 4>(stream + count / 4, count % 4, out + count / 4 * 2);
}

// Appends the low kUsed bits of each word.
template <unsigned kUsed>
void JoinWords(const uint8_t* words, size_t count, uint8_t* stream) {
  uint64_t pending = 0;  // bits that are not written yet
  unsigned bits = 0;     // how many: fewer than 32 between words
  for (size_t i = 0; i < count; ++i) {
    uint32_t word = 0;
    std::memcpy(&word, words + 4 * i, 4);
    pending |= (word & Mask(kUsed, 64)) << bits;
    bits += kUsed;
    if (bits >= 32) {
      std::memcpy(stream, &pending, 4);
      stream += 4;
      pending >>= 32;
      bits -= 32;
    }
  }
  StoreLittle(pending, (bits + 7) / 8, stream);
}

}  // namespace

void UnpackToNibbles(uint32_t bits, const uint8_t* stream, size_t count, uint8_t* nibbles) {
  switch (bits) {
    case 1:
      return Unpack<1, 4>(stream, count, nibbles);
    case 2:
      return UnpackPairs(stream, count, nibbles);
    default:
      return Unpack<3, 4>(stream, count, nibbles);
  }
}

void UnpackToBytes(uint32_t bits, const uint8_t* stream, size_t count, uint8_t* bytes) {
  switch (bits) {
    case 5:
      return Unpack<5, 8>(stream, count, bytes);
    case 6:
      return Unpack<6, 8>(stream, count, bytes);
    default:
      return Unpack<7, 8>(stream, count, bytes);
  }
}

void WordsToDense(uint32_t bits, const uint8_t* words, size_t count, uint8_t* stream) {
  // Ten codes of 3 bits, six of 5 and five of 6 fill 30 bits of a word, four of 7 fill 28.
  if (bits == 7) return JoinWords<28>(words, count, stream);
  JoinWords<30>(words, count, stream);
}

}  // namespace prepack
