#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace prepack {

// Bytes as the numbers that kernels compute with.
inline const uint8_t* U8(const std::byte* bytes) {
  return reinterpret_cast<const uint8_t*>(bytes);
}
inline uint8_t* U8(std::byte* bytes) {
  return reinterpret_cast<uint8_t*>(bytes);
}

// Not zero if any bit differs. There is no way out of the loop, so that compilers use vectors. g++
// unrolls it only if told, and takes twice the time otherwise.
inline uint64_t DifferentBits(const std::byte* a, const std::byte* b, size_t words) {
  uint64_t bits = 0;
#pragma GCC unroll 8
  for (size_t i = 0; i < words; ++i) {
    uint64_t left = 0;
    uint64_t right = 0;
    std::memcpy(&left, a + i * sizeof(left), sizeof(left));
    std::memcpy(&right, b + i * sizeof(right), sizeof(right));
    bits |= left ^ right;
  }
  return bits;
}

// At the speed of memory with every C library: == of vectors of std::byte goes byte by byte, and so
// does the memcmp of musl and of compiler-rt.
inline bool SameBytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  constexpr size_t kWord = sizeof(uint64_t);
  constexpr size_t kBlock = 512;  // words
  if (a.size() != b.size()) return false;
  const size_t words = a.size() / kWord;
  for (size_t word = 0; word < words; word += kBlock) {
    const size_t at = word * kWord;
    // Where hardware stops to look ahead: at the end of a page.
    for (size_t line = 0; line < kBlock * kWord; line += 64) {
      __builtin_prefetch(a.data() + at + kBlock * kWord + line);
      __builtin_prefetch(b.data() + at + kBlock * kWord + line);
    }
    if (DifferentBits(a.data() + at, b.data() + at, std::min(kBlock, words - word)) != 0) {
      return false;
    }
  }
  return std::ranges::equal(a.subspan(words * kWord), b.subspan(words * kWord));
}

// Arithmetic on numbers that come from a file. Use these for every size, offset and product of a
// shape, so that unchecked arithmetic on such numbers looks odd.

inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<uint64_t> CheckedMul(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// Product of all dimensions; 1 for a scalar (rank 0). Overflow is reported even when a later
// dimension is zero: such a shape is not one that a sound writer makes.
inline std::optional<uint64_t> CheckedProduct(std::span<const uint64_t> dims) {
  uint64_t product = 1;
  bool has_zero = false;
  for (const uint64_t dim : dims) {
    if (dim == 0) {
      has_zero = true;
      continue;
    }
    const std::optional<uint64_t> next = CheckedMul(product, dim);
    if (!next) return std::nullopt;
    product = *next;
  }
  return has_zero ? 0 : product;
}

// `value` rounded up to a multiple of `unit` (> 0).
inline std::optional<uint64_t> CheckedAlignUp(uint64_t value, uint64_t unit) {
  const uint64_t rest = value % unit;
  return rest == 0 ? std::optional<uint64_t>(value) : CheckedAdd(value, unit - rest);
}

// For sizes that are known to be sound.
constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace prepack
