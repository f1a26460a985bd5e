// The instruction sets decode AWQ's layouts to the same bytes.

#include <vector>

#include "catch.h"
#include "prepack/base/isa.h"
#include "prepack/base/random.h"
#include "prepack/kernels/kernels.h"

namespace prepack::testing {
namespace {

std::vector<uint8_t> RandomBytes(size_t count, SplitMix64& random) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Next());
  return bytes;
}

TEST_CASE("every instruction set unpacks gemv_fast chunks as the positions say") {
  SplitMix64 random(11);
  for (const Isa isa : SupportedIsas()) {
    INFO(IsaName(isa));
    for (const size_t chunks : {size_t{1}, size_t{2}, size_t{7}}) {
      const std::vector<uint8_t> stored = RandomBytes(chunks * kGemvFastChunkBytes, random);
      for (size_t row = 0; row < kGemvFastRows; ++row) {
        // One byte more than is to be written, to see that it is left alone.
        std::vector<uint8_t> found(chunks * kGemvFastRowBytes + 1, 0xA5);
        KernelsFor(isa).unpack_gemv_fast(stored.data() + row * kGemvFastRowBytes, chunks,
                                         found.data());
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

}  // namespace
}  // namespace prepack::testing
