#pragma once

// The kernels behind codes.h: codes out of little-endian bit streams, in which code i of b bits
// takes bits [i·b, i·b + b).

#include <cstddef>
#include <cstdint>

namespace prepack {

// Unpacks `count` codes of a dense stream: of 1, 2 or 3 bits two per byte, the first in the low
// half, and of 5, 6 or 7 bits one per byte. Reads ⌈count · bits / 8⌉ bytes. The unused half of the
// last byte is zero when the count is odd.
using UnpackCodesFn = void(uint32_t bits, const uint8_t* stream, size_t count, uint8_t* out);

// Joins the low `used` bits, 28 or 30, of `count` 32-bit words. Writes ⌈count · used / 8⌉ bytes;
// bits behind the last are zero.
using JoinWordsFn = void(uint32_t used, const uint8_t* words, size_t count, uint8_t* stream);

}  // namespace prepack
