// The instruction sets decode AWQ's layouts to the same bytes.

#include <algorithm>
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

unsigned NibbleOfColumns(const std::vector<uint8_t>& bytes, size_t nibble) {
  return bytes[nibble / 2] >> (nibble % 2 * 4) & 15U;
}

TEST_CASE("every instruction set brings AWQ's columns into the order of the channels, and back") {
  constexpr size_t kCols = 3;
  constexpr size_t kGap = 5;  // bytes between the columns
  SplitMix64 random(12);
  for (const Isa isa : SupportedIsas()) {
    // Less than a register, whole ones, and some that are left over.
    for (const size_t channels : {size_t{8}, size_t{64}, size_t{128}, size_t{264}}) {
      INFO(IsaName(isa) << ", " << channels << " channels");
      const size_t stride = channels / 2 + kGap;
      const std::vector<uint8_t> stored = RandomBytes(kCols * stride, random);
      std::vector<uint8_t> ordered(kCols * channels / 2 + 1, 0xA5);
      KernelsFor(isa).order_awq_columns(stored.data(), stride, kCols, channels, ordered.data(),
                                        channels / 2);
      CHECK(ordered.back() == 0xA5);
      for (size_t col = 0; col < kCols; ++col) {
        for (unsigned n = 0; n < channels; ++n) {
          const size_t word = col * stride * 2 + n / 8 * 8;
          REQUIRE(NibbleOfColumns(ordered, col * channels + n) ==
                  NibbleOfColumns(stored, word + AwqNibble(n % 8)));
        }
      }

      std::vector<uint8_t> back = stored;  // so that the gaps are equal, too
      for (size_t col = 0; col < kCols; ++col) {
        std::copy_n(&ordered[col * channels / 2], channels / 2, &back[col * stride]);
      }
      KernelsFor(isa).disorder_awq_columns(back.data(), stride, kCols, channels, back.data(),
                                           stride);
      CHECK(back == stored);
    }
  }
}

}  // namespace
}  // namespace prepack::testing
