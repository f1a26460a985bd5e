// In the place of the libc's, in programs that are linked with musl: that one goes byte by byte,
// and the names of the tensors of large models are alike for dozens of bytes.

#include <cstddef>
#include <cstdint>

namespace {

// As a number that is smaller where the first byte that differs is.
uint64_t LoadBigEndian(const unsigned char* bytes) {
  uint64_t value = 0;
  __builtin_memcpy(&value, bytes, sizeof value);
  return __builtin_bswap64(value);  // both processors are little-endian
}

}  // namespace

extern "C" int memcmp(const void* a, const void* b, size_t bytes) {
  const auto* left = static_cast<const unsigned char*>(a);
  const auto* right = static_cast<const unsigned char*>(b);
  for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t)) {
    const uint64_t x = LoadBigEndian(left);
    const uint64_t y = LoadBigEndian(right);
    if (x != y) return x < y ? -1 : 1;
    left += sizeof(uint64_t);
    right += sizeof(uint64_t);
  }
  for (; bytes != 0; --bytes, ++left, ++right) {
    if (*left != *right) return *left < *right ? -1 : 1;
  }
  return 0;
}
