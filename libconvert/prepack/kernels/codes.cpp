#include "prepack/kernels/codes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "prepack/kernels/dense_fields.h"
#include "prepack/kernels/kernels.h"

namespace prepack {

namespace {

// Eight fields kFrom apart (4 or 8) to eight of kBits, side by side.
template <unsigned kBits, unsigned kFrom>
uint64_t Gather8(uint64_t fields) {
  constexpr uint64_t kOne = FieldMask(kBits, 2 * kFrom);
  constexpr uint64_t kTwo = FieldMask(2 * kBits, 4 * kFrom);
  constexpr uint64_t kFour = FieldMask(4 * kBits, 64);
  fields = (fields & kOne) | ((fields >> kFrom) & kOne) << kBits;
  fields = (fields & kTwo) | ((fields >> (2 * kFrom)) & kTwo) << (2 * kBits);
  return (fields & kFour) | ((fields >> (4 * kFrom)) & kFour) << (4 * kBits);
}

template <unsigned kBits, unsigned kFrom>
void Pack(const uint8_t* codes, size_t count, uint8_t* stream) {
  // Eight bytes are stored although kBits of them count, as long as there is room: what follows
  // writes over the others.
  for (size_t left = DenseBytes(kBits, count); left >= 8 && count >= 8; left -= kBits, count -= 8) {
    uint64_t fields = 0;
    std::memcpy(&fields, codes, kFrom);
    fields = Gather8<kBits, kFrom>(fields);
    std::memcpy(stream, &fields, 8);
    codes += kFrom;
    stream += kBits;
  }
  while (count > 0) {
    const size_t codes_here = std::min<size_t>(count, 8);
    const uint64_t fields = LoadLittle(codes, DenseBytes(kFrom, codes_here));
    StoreLittle(Gather8<kBits, kFrom>(fields), DenseBytes(kBits, codes_here), stream);
    codes += kFrom;
    stream += kBits;
    count -= codes_here;
  }
}

}  // namespace

void UnpackToNibbles(uint32_t bits, const uint8_t* stream, size_t count, uint8_t* nibbles) {
  Kernels().unpack_codes(bits, stream, count, nibbles);
}

void UnpackToBytes(uint32_t bits, const uint8_t* stream, size_t count, uint8_t* bytes) {
  Kernels().unpack_codes(bits, stream, count, bytes);
}

void WordsToDense(uint32_t bits, const uint8_t* words, size_t count, uint8_t* stream) {
  // Ten codes of 3 bits, six of 5 and five of 6 fill 30 bits of a word, four of 7 fill 28.
  Kernels().join_words(bits == 7 ? 28 : 30, words, count, stream);
}

void PackFromNibbles(uint32_t bits, const uint8_t* nibbles, size_t count, uint8_t* stream) {
  switch (bits) {
    case 1:
      return Pack<1, 4>(nibbles, count, stream);
    case 2:
      return Pack<2, 4>(nibbles, count, stream);
    case 3:
      return Pack<3, 4>(nibbles, count, stream);
    default:
      std::memcpy(stream, nibbles, DenseBytes(4, count));
  }
}

void PackFromBytes(uint32_t bits, const uint8_t* bytes, size_t count, uint8_t* stream) {
  switch (bits) {
    case 1:
      return Pack<1, 8>(bytes, count, stream);
    case 2:
      return Pack<2, 8>(bytes, count, stream);
    case 3:
      return Pack<3, 8>(bytes, count, stream);
    case 4:
      return Pack<4, 8>(bytes, count, stream);
    case 5:
      return Pack<5, 8>(bytes, count, stream);
    case 6:
      return Pack<6, 8>(bytes, count, stream);
    case 7:
      return Pack<7, 8>(bytes, count, stream);
    default:
      std::memcpy(stream, bytes, count);
  }
}

void DenseToWords(uint32_t bits, const uint8_t* stream, size_t count, uint8_t* words) {
  const size_t per_word = 32 / bits;
  const uint32_t one = (1U << bits) - 1;
  for (size_t first = 0; first < count; first += per_word) {
    uint32_t word = 0;
    for (size_t i = 0; i < std::min(per_word, count - first); ++i) {
      const size_t bit = (first + i) * bits;
      uint32_t field = stream[bit / 8];
      if (bit % 8 + bits > 8) field |= static_cast<uint32_t>(stream[bit / 8 + 1]) << 8;
      word |= (field >> bit % 8 & one) << (i * bits);
    }
    StoreLittle(word, 4, words);
    words += 4;
  }
}

}  // namespace prepack
