#pragma once

// Codes of 1 to 7 bits out of little-endian bit streams, into the forms that a panel holds, and
// back.
//
// A dense stream holds code i in bits [i·b, i·b + b): eight codes take exactly b bytes, and that is
// the unit of work: one load, and three steps that each double the distance between the fields.
//
// A word-aligned stream holds ⌊32/b⌋ codes per 32-bit word, from the lowest bits up, and wastes the
// high ones; it is first made dense.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace prepack {

static_assert(std::endian::native == std::endian::little);

// Bytes that `count` codes of `bits` bits take in a dense stream.
constexpr size_t DenseBytes(uint32_t bits, size_t count) {
  return (count * bits + 7) / 8;
}

// 32-bit words of a stream of `count` codes; for 1, 2, 4 and 8 bits the same in both forms.
constexpr uint64_t CodeWords(uint32_t bits, bool word_aligned, uint64_t count) {
  const uint64_t per_word = 32 / bits;
  if (word_aligned) return count / per_word + (count % per_word != 0 ? 1 : 0);
  // ⌈count · bits / 32⌉ without overflow: 32 codes take `bits` words.
  return count / 32 * bits + (count % 32 * bits + 31) / 32;
}

// Unpacks codes of 1, 2 or 3 bits, two per output byte, the first in the low half: writes
// ⌈count/2⌉ bytes. Reads DenseBytes(bits, count) bytes of `stream`. The unused half of the last
// byte is zero when count is odd.
void UnpackToNibbles(uint32_t bits, const uint8_t* stream, size_t count, uint8_t* nibbles);

// Unpacks codes of 5, 6 or 7 bits to one byte each.
void UnpackToBytes(uint32_t bits, const uint8_t* stream, size_t count, uint8_t* bytes);

// Turns `words` 32-bit words of a word-aligned stream (bits 3, 5, 6 or 7) into a dense one of
// words · ⌊32/b⌋ codes. `stream` has room for DenseBytes of them.
void WordsToDense(uint32_t bits, const uint8_t* words, size_t count, uint8_t* stream);

// The inverse of these three, for codes that have no bits above `bits`: codes of 1 to 3 bits from
// nibbles, of 1 to 8 bits from bytes. Writes DenseBytes(bits, count) bytes; bits behind the last
// code are zero.
void PackFromNibbles(uint32_t bits, const uint8_t* nibbles, size_t count, uint8_t* stream);
void PackFromBytes(uint32_t bits, const uint8_t* bytes, size_t count, uint8_t* stream);

// Turns a dense stream of `count` codes into ⌈count / ⌊32/b⌋⌉ words of a word-aligned one, bits
// without a code zero.
void DenseToWords(uint32_t bits, const uint8_t* stream, size_t count, uint8_t* words);

// Codes that are stored one per byte. Loops without branches over bytes or pairs of them, which the
// compiler vectorises; they are bound by memory.

// out[i] = bytes[i] + offset (mod 256). False when a result exceeds `max`, which is 2^b − 1.
inline bool OffsetBytes(const uint8_t* bytes, size_t count, uint8_t offset, uint8_t max,
                        uint8_t* out) {
  uint8_t all = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto code = static_cast<uint8_t>(bytes[i] + offset);
    all = static_cast<uint8_t>(all | code);
    out[i] = code;
  }
  return (all & ~static_cast<unsigned>(max)) == 0;
}

// The same, with two results per output byte, the first in the low half: writes ⌈count/2⌉ bytes.
// `max` is at most 15.
inline bool OffsetBytesToNibbles(const uint8_t* bytes, size_t count, uint8_t offset, uint8_t max,
                                 uint8_t* out) {
  // Two bytes at a time: a sum of 16 bits, in which the carry out of the low byte's top bit is left
  // out and put back by XOR. The compiler makes vectors of it.
  const auto offsets = static_cast<uint16_t>(offset * 0x0101U);
  const auto low_bits = static_cast<uint16_t>(offsets & 0x7F7FU);
  uint16_t all = 0;
  for (size_t i = 0; i < count / 2; ++i) {
    uint16_t pair = 0;
    std::memcpy(&pair, bytes + 2 * i, 2);
    const auto sum = static_cast<uint16_t>((pair & 0x7F7FU) + low_bits);
    const auto codes = static_cast<uint16_t>(sum ^ ((pair ^ offsets) & 0x8080U));
    all = static_cast<uint16_t>(all | codes);
    out[i] = static_cast<uint8_t>(codes | codes >> 4);
  }
  if (count % 2 != 0) {
    out[count / 2] = static_cast<uint8_t>(bytes[count - 1] + offset);
    all = static_cast<uint16_t>(all | out[count / 2]);
  }
  return (all & ~(max * 0x0101U)) == 0;
}

// Codes of 4 bits, two per byte, to one byte each: out[i] = code i + offset (mod 256).
inline void NibblesToBytes(const uint8_t* nibbles, size_t count, uint8_t offset, uint8_t* out) {
  for (size_t i = 0; i < count / 2; ++i) {
    out[2 * i] = static_cast<uint8_t>((nibbles[i] & 15U) + offset);
    out[2 * i + 1] = static_cast<uint8_t>((nibbles[i] >> 4) + offset);
  }
  if (count % 2 != 0) out[count - 1] = static_cast<uint8_t>((nibbles[count / 2] & 15U) + offset);
}

// Is one of the FP8 E4M3 codes a NaN (0x7F or 0xFF)?
inline bool HasF8NaN(const uint8_t* codes, size_t count) {
  uint8_t any = 0;
  for (size_t i = 0; i < count; ++i) {
    any = static_cast<uint8_t>(any | ((codes[i] & 0x7FU) + 1U));
  }
  return (any & 0x80U) != 0;
}

}  // namespace prepack
