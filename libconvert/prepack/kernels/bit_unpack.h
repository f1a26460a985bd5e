#ifndef PREPACK_KERNELS_BIT_UNPACK_H_
#define PREPACK_KERNELS_BIT_UNPACK_H_

// Codes of 1 to 7 bits out of little-endian bit streams, into the forms that a panel holds.
//
// A dense stream holds code i in bits [i·b, i·b + b): eight codes take exactly b bytes, and that is
// the unit of work: one load, and three steps that each double the distance between the fields.
//
// A word-aligned stream holds ⌊32/b⌋ codes per 32-bit word, from the lowest bits up, and wastes the
// high ones; it is first made dense.

#include <cstddef>
#include <cstdint>

namespace prepack {

// Bytes that `count` codes of `bits` bits take in a dense stream.
constexpr size_t DenseBytes(uint32_t bits, size_t count) {
  return (count * bits + 7) / 8;
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

}  // namespace prepack

#endif  // PREPACK_KERNELS_BIT_UNPACK_H_
