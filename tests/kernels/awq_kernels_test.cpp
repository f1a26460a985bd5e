// The instruction sets decode AWQ's layouts to the same bytes.

#include <array>
#include <vector>

#include "base/random.h"
#include "catch.h"
#include "kernels/awq_gemm.h"
#include "kernels/awq_gemv_fast.h"

namespace prepack {
namespace {

std::vector<uint8_t> RandomBytes(size_t count, SplitMix64& random) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Next());
  return bytes;
}

TEST_CASE("Every instruction set unpacks gemv_fast chunks as the positions say") {
  SplitMix64 random(11);
  for (const Isa isa : SupportedIsas()) {
    INFO(IsaName(isa));
    for (const size_t chunks : {size_t{1}, size_t{2}, size_t{7}}) {
      const std::vector<uint8_t> stored = RandomBytes(chunks * kGemvFastChunkBytes, random);
      for (size_t row = 0; row < kGemvFastRows; ++row) {
        // One byte more than is to be written, to see that it is left alone.
        std::vector<uint8_t> found(chunks * kGemvFastRowBytes + 1, 0xA5);
        UnpackGemvFastFor(isa)(stored.data() + row * kGemvFastRowBytes, chunks, found.data());
        std::vector<uint8_t> expected(found.size());
        expected.back() = 0xA5;
        for (size_t k = 0; k < chunks * kGemvFastCols; ++k) {
          const size_t half = 64 * (k / 64) + 16 * row + 8 * (k / 32 % 2) + k % 8;
          const size_t nibble = half * 4 + k % 32 / 8;
          const unsigned code = stored[nibble / 2] >> (nibble % 2 * 4) & 15U;
          expected[k / 2] = static_cast<uint8_t>(expected[k / 2] | code << (k % 2 * 4));
        }
        CHECK(found == expected);
      }
    }
  }
}

TEST_CASE("Every instruction set unpacks gemm tiles as the order of nibbles says") {
  SplitMix64 random(12);
  constexpr std::array<unsigned, 8> kNibble = {0, 4, 1, 5, 2, 6, 3, 7};
  for (const Isa isa : SupportedIsas()) {
    INFO(IsaName(isa));
    for (const size_t cols :
         {size_t{1}, size_t{2}, size_t{63}, size_t{64}, size_t{130}, kAwqTileCols}) {
      for (const size_t words : {size_t{1}, size_t{2}}) {
        CAPTURE(cols, words);
        const size_t stride = 4 * words + 4;
        const std::vector<uint8_t> stored = RandomBytes(cols * stride, random);
        const size_t row_bytes = (cols + 1) / 2;
        std::vector<uint8_t> found(16 * row_bytes, 0xA5);
        std::vector<uint8_t> expected = found;
        AwqTileRows rows{};
        for (size_t n = 0; n < 8 * words; ++n) {
          if (n == 5) continue;  // not wanted
          rows[n] = found.data() + n * row_bytes;
          for (size_t k = 0; k < 2 * row_bytes; ++k) {
            const unsigned nibble = kNibble[n % 8];
            const unsigned code =
                k < cols ? stored[k * stride + n / 8 * 4 + nibble / 2] >> (nibble % 2 * 4) & 15U
                         : 0U;
            uint8_t& byte = expected[n * row_bytes + k / 2];
            byte = static_cast<uint8_t>(k % 2 == 0 ? code : (byte | code << 4));
          }
        }
        UnpackAwqTile(NibbleTransposeFor(isa), stored.data(), stride, words, cols, rows);
        CHECK(found == expected);
      }
    }
  }
}

}  // namespace
}  // namespace prepack
