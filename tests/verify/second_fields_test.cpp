// Fields of words, and the steps that become of them: against a plain reading, bit by bit.

#include "prepack/verify/second/fields.h"

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "catch.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/random.h"

namespace prepack::testing {
namespace {

std::vector<uint32_t> RandomWords(uint64_t count, uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<uint32_t> words(count);
  for (uint32_t& word : words) word = static_cast<uint32_t>(random.Next());
  return words;
}

// Bit `bit` of some words, the lowest of the first one first.
uint32_t BitOf(std::span<const uint32_t> words, uint64_t bit) {
  return words[bit / 32] >> bit % 32 & 1U;
}

// Where bit `bit` of field `index` lies.
uint64_t PlaceOf(const SecondFields& fields, uint64_t index, uint32_t bit) {
  const uint64_t bits = fields.bits;
  if (fields.whole_words) return index / (32 / bits) * 32 + index % (32 / bits) * bits + bit;
  if (!fields.planes) return index * bits + bit;
  uint32_t below = 0;  // bits of the planes before
  for (uint32_t width = 8; width != 0; width /= 2) {
    if ((bits & width) == 0) continue;
    if (bit < below + width) {
      return (index / 32 * bits + below) * 32 + index % 32 * width + bit - below;
    }
    below += width;
  }
  return 0;
}

uint8_t FieldOf(const SecondFields& fields, std::span<const uint32_t> words, uint64_t index) {
  uint32_t field = 0;
  for (uint32_t bit = 0; bit < fields.bits; ++bit) {
    field |= BitOf(words, PlaceOf(fields, index, bit)) << bit;
  }
  return static_cast<uint8_t>(field);
}

TEST_CASE("fields of every width are split as they are read one by one") {
  constexpr uint64_t kFields = 300;
  for (uint32_t bits = 1; bits <= 8; ++bits) {
    for (const SecondFields& fields :
         {SecondFields{.bits = bits}, {bits, true}, {bits, false, true}}) {
      const std::vector<uint32_t> words =
          RandomWords(fields.Words(kFields + 32) + kFieldSlack, bits);
      for (const uint64_t begin : {0U, 64U, 128U}) {
        for (const uint64_t count : {1U, 7U, 64U, 71U}) {
          CAPTURE(bits, fields.whole_words, fields.planes, begin, count);
          std::vector<uint8_t> memory;
          const std::span found =
              fields.Split(&words[fields.FirstWord(begin)], begin, count, memory);
          REQUIRE(found.size() == count);
          std::vector<uint8_t> expected;
          std::vector<uint8_t> one_by_one;
          for (uint64_t i = begin; i < begin + count; ++i) {
            expected.push_back(FieldOf(fields, words, i));
            one_by_one.push_back(static_cast<uint8_t>(fields.At(words, i)));
          }
          CHECK(std::vector<uint8_t>(found.begin(), found.end()) == expected);
          CHECK(one_by_one == expected);
        }
      }
    }
  }
}

TEST_CASE("words of any number of lines and columns are turned") {
  for (const uint64_t lines : {1U, 4U, 5U, 16U, 23U, 64U, 133U}) {
    for (const uint64_t columns : {1U, 3U, 4U, 17U, 36U}) {
      CAPTURE(lines, columns);
      const uint64_t stride = columns + 2;
      const uint64_t turned_stride = lines + 3;
      const std::vector<uint32_t> words = RandomWords(lines * stride, lines * columns);
      std::vector<uint32_t> turned(columns * turned_stride, 7);
      TurnSecondWords(reinterpret_cast<const std::byte*>(words.data()), lines, columns, stride,
                      turned_stride, turned.data());
      std::vector<uint32_t> expected(columns * turned_stride, 7);
      for (uint64_t line = 0; line < lines; ++line) {
        for (uint64_t column = 0; column < columns; ++column) {
          expected[column * turned_stride + line] = words[line * stride + column];
        }
      }
      CHECK(turned == expected);
    }
  }
}

// Two rows of 24 input channels in four groups.
struct StepsExample {
  std::vector<uint64_t> group_of;
  std::vector<int16_t> zeros;
  uint32_t bits = 4;
  bool is_signed = false;
};

void CheckSteps(const StepsExample& x) {
  constexpr uint64_t kRows = 2;
  const uint64_t inputs = x.group_of.size();
  const uint64_t row_bytes = inputs * x.bits / 8;
  const std::vector<uint32_t> words = RandomWords(kRows * row_bytes / 4, x.bits);
  const auto* bytes = reinterpret_cast<const uint8_t*>(words.data());
  const SecondFields fields{.bits = x.bits};
  std::vector<float> expected;
  std::vector<uint8_t> codes;
  bool fits = true;
  for (uint64_t i = 0; i < kRows * inputs; ++i) {
    const uint64_t groups = x.zeros.size() / kRows;
    const int16_t zero =
        x.zeros.size() == 1 ? x.zeros[0] : x.zeros[i / inputs * groups + x.group_of[i % inputs]];
    const uint8_t field = FieldOf(fields, words, i);
    codes.push_back(x.is_signed ? field ^ 0x80U : field);
    expected.push_back(static_cast<float>(int{codes.back()} - int{zero}));
    fits = fits && (x.bits < 8 ? zero >= 0 && zero < 1 << x.bits : zero == 128);
  }
  for (const bool takes_small : {false, true}) {
    for (const bool by_fields : {false, true}) {
      CAPTURE(x.bits, x.is_signed, takes_small, by_fields);
      DecodedRows rows;
      rows.group_of = x.group_of;
      SecondSteps steps(x.bits, x.zeros, kRows, takes_small, rows);
      if (x.is_signed) steps.SetSigned();
      for (uint64_t row = 0; row < kRows; ++row) {
        if (by_fields) {
          steps.PutFields(row, bytes + row * row_bytes);
        } else {
          steps.Put(row, &codes[row * inputs]);
        }
      }
      CHECK(rows.steps.empty() == (takes_small && fits));
      rows.Widen();
      CHECK(rows.steps == expected);
    }
  }
}

TEST_CASE("steps are codes less the zero points of their groups, as bytes where they fit") {
  const std::vector<uint64_t> even = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1,
                                      1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3};
  std::vector<uint64_t> odd = even;
  odd[8] = 0;
  std::vector<uint64_t> scattered = even;
  for (uint64_t i = 0; i < scattered.size(); ++i) scattered[i] = i * 7 % 4;
  const std::vector<int16_t> of_groups = {3, 8, 0, 15, 7, 7, 7, 7};
  for (const std::vector<uint64_t>& group_of : {even, odd, scattered}) {
    CheckSteps({.group_of = group_of, .zeros = {8}});
    CheckSteps({.group_of = group_of, .zeros = of_groups});
    CheckSteps({.group_of = group_of, .zeros = {3, 8, 0, 16, 7, 7, 7, 7}});  // 15 and more
    CheckSteps({.group_of = group_of, .zeros = {-1}});
    CheckSteps({.group_of = group_of, .zeros = {128}, .bits = 8});
    CheckSteps({.group_of = group_of, .zeros = {128}, .bits = 8, .is_signed = true});
    CheckSteps({.group_of = group_of, .zeros = of_groups, .bits = 8});
    CheckSteps({.group_of = group_of, .zeros = {255}, .bits = 8, .is_signed = true});
  }
}

TEST_CASE("codes of FP8 are delivered as bytes unless one is not a number") {
  std::vector<uint8_t> codes;
  for (unsigned code = 0; code < 256; ++code) {
    if ((code & 0x7FU) != 0x7FU) codes.push_back(static_cast<uint8_t>(code));
  }
  for (const bool takes_codes : {false, true}) {
    DecodedRows rows;
    rows.group_of.assign(codes.size(), 0);
    PutSecondFp8(codes, takes_codes, rows);
    CHECK(rows.small.empty() != takes_codes);
    CHECK((rows.values != nullptr) == takes_codes);
    CHECK(rows.rows() == 1);
    CHECK(rows.Step(0, 3) == F8E4M3ToF32(3));
    rows.Widen();
    for (size_t i = 0; i < codes.size(); ++i) REQUIRE(rows.steps[i] == F8E4M3ToF32(codes[i]));
  }
  codes.back() = 0xFF;
  DecodedRows rows;
  rows.group_of.assign(codes.size(), 0);
  PutSecondFp8(codes, /*takes_codes=*/true, rows);
  CHECK(rows.small.empty());
  CHECK(rows.values == nullptr);
  CHECK(std::isnan(rows.steps.back()));
}

}  // namespace
}  // namespace prepack::testing
