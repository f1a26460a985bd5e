#include "prepack/kernels/codes.h"

#include <vector>

#include "catch.h"
#include "prepack/base/random.h"

namespace prepack::testing {
namespace {

std::vector<uint8_t> RandomCodes(uint32_t bits, size_t count, SplitMix64& random) {
  std::vector<uint8_t> codes(count);
  for (uint8_t& code : codes) code = static_cast<uint8_t>(random.Below(1U << bits));
  return codes;
}

// Code i in bits [first(i), + b) of the stream, bit by bit.
template <typename First>
std::vector<uint8_t> Pack(const std::vector<uint8_t>& codes, uint32_t bits, size_t bytes,
                          First first) {
  std::vector<uint8_t> stream(bytes);
  for (size_t i = 0; i < codes.size(); ++i) {
    for (uint32_t b = 0; b < bits; ++b) {
      const size_t bit = first(i) + b;
      stream[bit / 8] = static_cast<uint8_t>(stream[bit / 8] | (codes[i] >> b & 1U) << (bit % 8));
    }
  }
  return stream;
}

// Unpacks with a canary behind the output, so that a write too far is seen.
std::vector<uint8_t> Unpack(uint32_t bits, const std::vector<uint8_t>& stream, size_t count) {
  const bool nibbles = bits <= 3;
  std::vector<uint8_t> out((nibbles ? (count + 1) / 2 : count) + 8, 0xA5);
  (nibbles ? UnpackToNibbles : UnpackToBytes)(bits, stream.data(), count, out.data());
  for (size_t i = out.size() - 8; i < out.size(); ++i) REQUIRE(out[i] == 0xA5);
  out.resize(out.size() - 8);
  if (!nibbles) return out;
  std::vector<uint8_t> codes;
  for (size_t i = 0; i < count; ++i)
    codes.push_back(i % 2 == 0 ? out[i / 2] & 15 : out[i / 2] >> 4);
  if (count % 2 != 0) REQUIRE(out.back() >> 4 == 0);
  return codes;
}

TEST_CASE("codes of every width come out of a dense stream") {
  SplitMix64 random(11);
  for (const uint32_t bits : {1U, 2U, 3U, 5U, 6U, 7U}) {
    for (size_t count = 0; count < 80; ++count) {
      CAPTURE(bits, count);
      const std::vector<uint8_t> codes = RandomCodes(bits, count, random);
      std::vector<uint8_t> stream =
          Pack(codes, bits, DenseBytes(bits, count), [&](size_t i) { return i * bits; });
      if (!stream.empty() && count * bits % 8 != 0) {
        // Stray bits behind the last code must not show.
        stream.back() = static_cast<uint8_t>(stream.back() | 0xFFU << (count * bits % 8));
      }
      CHECK(Unpack(bits, stream, count) == codes);
    }
  }
}

TEST_CASE("a word-aligned stream becomes dense") {
  SplitMix64 random(12);
  for (const uint32_t bits : {3U, 5U, 6U, 7U}) {
    const size_t per_word = 32 / bits;
    for (size_t words = 0; words < 40; ++words) {
      CAPTURE(bits, words);
      const std::vector<uint8_t> codes = RandomCodes(bits, words * per_word, random);
      std::vector<uint8_t> aligned = Pack(codes, bits, 4 * words, [&](size_t i) {
        return i / per_word * 32 + i % per_word * bits;
      });
      for (size_t w = 0; w < words; ++w) aligned[4 * w + 3] |= 0xC0;  // wasted bits, set
      std::vector<uint8_t> dense(DenseBytes(bits, codes.size()) + 1, 0xA5);
      WordsToDense(bits, aligned.data(), words, dense.data());
      REQUIRE(dense.back() == 0xA5);
      dense.pop_back();
      CHECK(dense == Pack(codes, bits, dense.size(), [&](size_t i) { return i * bits; }));
    }
  }
}

TEST_CASE("the packings of compressed-tensors hold these bytes") {
  // −4 … 3, −4, 3 2 1 0 −1 −2 −3 with 4 added, as releases 0.17.0 and 0.18.0 write them.
  const std::vector<uint8_t> codes = {0, 1, 2, 3, 4, 5, 6, 7, 0, 7, 6, 5, 4, 3, 2, 1};
  const std::vector<uint8_t> dense = {0x88, 0xC6, 0xFA, 0xB8, 0xCB, 0x29};
  CHECK(Unpack(3, dense, codes.size()) == codes);
  const std::vector<uint8_t> words = {0x88, 0xC6, 0xFA, 0x38, 0x2E, 0xA7, 0x00, 0x00};
  std::vector<uint8_t> joined(DenseBytes(3, 20));
  WordsToDense(3, words.data(), 2, joined.data());
  CHECK(Unpack(3, joined, codes.size()) == codes);
}

TEST_CASE("signed bytes become unsigned codes, and those that do not fit are noticed") {
  const std::vector<uint8_t> bytes = {0xF8, 0xFF, 0x00, 0x07, 0x01};  // −8 −1 0 7 1
  std::vector<uint8_t> codes(5);
  CHECK(OffsetBytes(bytes.data(), 5, 8, 15, codes.data()));
  CHECK(codes == std::vector<uint8_t>{0, 7, 8, 15, 9});
  std::vector<uint8_t> nibbles(3);
  CHECK(OffsetBytesToNibbles(bytes.data(), 5, 8, 15, nibbles.data()));
  CHECK(nibbles == std::vector<uint8_t>{0x70, 0xF8, 0x09});
  CHECK(OffsetBytes(bytes.data(), 5, 128, 255, codes.data()));
  CHECK(codes == std::vector<uint8_t>{120, 127, 128, 135, 129});
  for (const uint8_t bad : {uint8_t{0x08}, uint8_t{0xF7}, uint8_t{0x80}, uint8_t{0x7F}}) {
    for (size_t place = 0; place < 5; ++place) {
      std::vector<uint8_t> damaged = bytes;
      damaged[place] = bad;
      CHECK_FALSE(OffsetBytes(damaged.data(), 5, 8, 15, codes.data()));
      CHECK_FALSE(OffsetBytesToNibbles(damaged.data(), 5, 8, 15, nibbles.data()));
    }
  }
}

TEST_CASE("FP8 NaN is found wherever it is") {
  std::vector<uint8_t> codes(100);
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<uint8_t>(i % 2 == 0 ? 0x7E : 0xFE);
  CHECK_FALSE(HasF8NaN(codes.data(), codes.size()));
  for (const uint8_t nan : {uint8_t{0x7F}, uint8_t{0xFF}}) {
    for (size_t place = 0; place < codes.size(); place += 33) {
      std::vector<uint8_t> damaged = codes;
      damaged[place] = nan;
      CHECK(HasF8NaN(damaged.data(), damaged.size()));
    }
  }
}

}  // namespace
}  // namespace prepack::testing
