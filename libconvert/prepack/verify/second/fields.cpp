// Eight fields at a time: they are whole bytes, whatever their width, and become one byte each.

#include "prepack/verify/second/fields.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "prepack/base/checked.h"
#include "prepack/base/float_convert.h"
#include "prepack/kernels/kernels.h"

namespace prepack {

uint32_t SecondFields::At(std::span<const uint32_t> words, uint64_t index, uint64_t stride,
                          uint64_t skipped) const {
  if (planes) return InPlanes(words, index, stride, skipped);
  const uint64_t first =
      whole_words ? index / PerWord() * 32 + index % PerWord() * bits : index * bits;
  const uint64_t word = (first / 32 - skipped) * stride;
  uint64_t both = words[word];
  if (first % 32 + bits > 32) both |= uint64_t{words[word + stride]} << 32;
  return static_cast<uint32_t>(both >> first % 32) & ((1U << bits) - 1);
}

uint32_t SecondFields::InPlanes(std::span<const uint32_t> words, uint64_t index, uint64_t stride,
                                uint64_t skipped) const {
  uint32_t field = 0;
  uint32_t below = 0;  // bits of the planes before
  for (uint32_t width = 8; width != 0; width /= 2) {
    if ((bits & width) == 0) continue;
    const uint64_t bit = index % 32 * width;
    const uint64_t word = FirstWord(index) + below + bit / 32;
    field |= (words[(word - skipped) * stride] >> bit % 32 & ((1U << width) - 1)) << below;
    below += width;
  }
  return field;
}

namespace {

constexpr uint64_t kEight = 8;

// The eight lowest fields of a number, one in each byte.
template <uint32_t kBits>
uint64_t SpreadEight(uint64_t fields) {
  constexpr uint64_t kFour = (uint64_t{1} << 4 * kBits) - 1;
  constexpr uint64_t kTwo = ((uint64_t{1} << 2 * kBits) - 1) * 0x0000000100000001;
  constexpr uint64_t kOne = ((uint64_t{1} << kBits) - 1) * 0x0001000100010001;
  fields = (fields & kFour) | (fields >> 4 * kBits & kFour) << 32;
  fields = (fields & kTwo) | (fields >> 2 * kBits & kTwo) << 16;
  return (fields & kOne) | (fields >> kBits & kOne) << 8;
}

uint64_t LoadEight(const uint8_t* bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Fields bit by bit. Writes whole eights.
template <uint32_t kBits>
void SplitDense(const uint8_t* bytes, uint64_t count, uint8_t* codes) {
  for (uint64_t i = 0; i < count; i += kEight, bytes += kBits, codes += kEight) {
    const uint64_t eight = SpreadEight<kBits>(LoadEight(bytes));
    std::memcpy(codes, &eight, sizeof eight);
  }
}

// Fields of words that none crosses. Writes some more, which the next word's replace.
template <uint32_t kBits>
void SplitWhole(const uint32_t* words, uint64_t count, uint8_t* codes) {
  constexpr uint64_t kFields = 32 / kBits;
  for (uint64_t i = 0; i < count; i += kFields, codes += kFields) {
    const uint64_t word = *words++;
    const uint64_t eight = SpreadEight<kBits>(word);
    std::memcpy(codes, &eight, sizeof eight);
    if constexpr (kFields > kEight) {
      const uint64_t others = SpreadEight<kBits>(word >> kEight * kBits);
      std::memcpy(codes + kEight, &others, sizeof others);
    }
  }
}

// Adds to 32 fields what a plane has of them. Returns where the next plane begins.
template <uint32_t kWidth>
const uint8_t* AddPlane(const uint8_t* bytes, uint32_t below, std::array<uint64_t, 4>& fields) {
  for (uint64_t& eight : fields) {
    eight |= SpreadEight<kWidth>(LoadEight(bytes)) << below;
    bytes += kWidth;
  }
  return bytes;
}

void SplitPlanes(const uint8_t* bytes, uint32_t bits, uint64_t count, uint8_t* codes) {
  for (uint64_t i = 0; i < count; i += 32, codes += 32) {
    std::array<uint64_t, 4> fields{};
    if ((bits & 8U) != 0) bytes = AddPlane<8>(bytes, 0, fields);
    if ((bits & 4U) != 0) bytes = AddPlane<4>(bytes, bits & 8U, fields);
    if ((bits & 2U) != 0) bytes = AddPlane<2>(bytes, bits & 12U, fields);
    if ((bits & 1U) != 0) bytes = AddPlane<1>(bytes, bits & 14U, fields);
    std::memcpy(codes, fields.data(), sizeof fields);
  }
}

template <uint32_t kBits>
void SplitWords(const uint32_t* words, bool whole_words, uint64_t count, uint8_t* codes) {
  if (whole_words && 32 % kBits != 0) {
    SplitWhole<kBits>(words, count, codes);
  } else {
    SplitDense<kBits>(reinterpret_cast<const uint8_t*>(words), count, codes);
  }
}

using SplitFn = void(const uint32_t* words, bool whole_words, uint64_t count, uint8_t* codes);
constexpr std::array<SplitFn*, 9> kSplits = {nullptr,       SplitWords<1>, SplitWords<2>,
                                             SplitWords<3>, SplitWords<4>, SplitWords<5>,
                                             SplitWords<6>, SplitWords<7>, SplitWords<8>};

// More than a word's fields and what is written behind them.
constexpr uint64_t kCodeSlack = 64;

}  // namespace

std::span<const uint8_t> SecondFields::Split(const uint32_t* words, uint64_t begin, uint64_t count,
                                             std::vector<uint8_t>& codes) const {
  // Fields of the first word that come before.
  const uint64_t before = whole_words && !planes ? begin % PerWord() : 0;
  codes.resize(std::max<uint64_t>(codes.size(), before + count + kCodeSlack));
  if (planes) {
    SplitPlanes(reinterpret_cast<const uint8_t*>(words), bits, count, codes.data());
  } else {
    kSplits[bits](words, whole_words, before + count, codes.data());
  }
  return std::span(codes).subspan(before, count);
}

namespace {

using FourWords [[gnu::vector_size(16)]] = uint32_t;
constexpr uint64_t kFourWords = 4;

// Of so many columns the lines of the cache that are written to stay in L1, if they lie in
// different places of it.
constexpr uint64_t kBlockWords = 256;
// Lines come from the page cache, too far apart to be foreseen: how many ahead they are asked for.
constexpr uint64_t kLinesAhead = 8;

void AskForFour(const std::byte* words, uint64_t line_bytes) {
  for (uint64_t i = 0; i < kFourWords; ++i) {
    __builtin_prefetch(words + (kLinesAhead + i) * line_bytes);
  }
}

FourWords LoadWords(const std::byte* words) {
  FourWords four;
  std::memcpy(&four, words, sizeof four);
  return four;
}

// Four words of four lines.
void TurnFour(const std::byte* words, uint64_t stride, uint64_t turned_stride, uint32_t* turned) {
  const FourWords a = LoadWords(words);
  const FourWords b = LoadWords(words + stride);
  const FourWords c = LoadWords(words + 2 * stride);
  const FourWords d = LoadWords(words + 3 * stride);
  const FourWords ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const FourWords cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const FourWords ab_above = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const FourWords cd_above = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const std::array<FourWords, 4> all = {__builtin_shufflevector(ab, cd, 0, 1, 4, 5),
                                        __builtin_shufflevector(ab, cd, 2, 3, 6, 7),
                                        __builtin_shufflevector(ab_above, cd_above, 0, 1, 4, 5),
                                        __builtin_shufflevector(ab_above, cd_above, 2, 3, 6, 7)};
  for (const FourWords& four : all) {
    std::memcpy(turned, &four, sizeof four);
    turned += turned_stride;
  }
}

}  // namespace

void TurnSecondWords(const std::byte* words, uint64_t lines, uint64_t columns, uint64_t stride,
                     uint64_t turned_stride, uint32_t* turned) {
  const uint64_t line_bytes = stride * sizeof(uint32_t);
  const uint64_t whole_columns = columns / kFourWords * kFourWords;
  const uint64_t whole_lines = lines / kFourWords * kFourWords;
  for (uint64_t first = 0; first < whole_columns; first += kBlockWords) {
    const uint64_t last = std::min(whole_columns, first + kBlockWords);
    for (uint64_t line = 0; line < whole_lines; line += kFourWords) {
      const std::byte* four = words + line * line_bytes;
      for (uint64_t column = first; column < last; column += kFourWords) {
        if (column % kLineWords == 0) AskForFour(four + column * sizeof(uint32_t), line_bytes);
        TurnFour(four + column * sizeof(uint32_t), line_bytes, turned_stride,
                 turned + column * turned_stride + line);
      }
    }
  }
  for (uint64_t line = 0; line < lines; ++line) {
    const uint64_t begin = line < whole_lines ? whole_columns : 0;
    for (uint64_t column = begin; column < columns; ++column) {
      std::memcpy(&turned[column * turned_stride + line],
                  words + line * line_bytes + column * sizeof(uint32_t), sizeof(uint32_t));
    }
  }
}

SecondSteps::SecondSteps(uint32_t bits, std::span<const int16_t> zeros, uint64_t rows,
                         bool takes_small, DecodedRows& out)
    : bits_(bits),
      zeros_(zeros),
      groups_(zeros.size() == 1 ? 0 : zeros.size() / rows),
      inputs_(out.inputs()),
      out_(out) {
  const int16_t most = static_cast<int16_t>(1 << bits);
  const bool fit = bits < 8
                       ? std::ranges::all_of(zeros, [=](int16_t z) { return z >= 0 && z < most; })
                       : std::ranges::all_of(zeros, [](int16_t z) { return z == 128; });
  small_ = takes_small && fit;
  out.Resize(rows * inputs_, small_);
  if (groups_ == 0) return;
  for (uint64_t begin = 0; begin < inputs_;) {
    const uint64_t group = out.group_of[begin];
    uint64_t end = begin + 1;
    while (end < inputs_ && out.group_of[end] == group) ++end;
    runs_.push_back({begin, end, group});
    has_even_runs_ = has_even_runs_ && begin % 2 == 0;
    begin = end;
  }
}

template <typename Work>
void SecondSteps::ForRuns(uint64_t row, const Work& work) const {
  const std::span zeros = groups_ == 0 ? zeros_ : zeros_.subspan(row * groups_, groups_);
  if (std::ranges::count(zeros, zeros.front()) == std::ssize(zeros)) {
    work(uint64_t{0}, inputs_, zeros.front());
    return;
  }
  for (const Run& run : runs_) work(run.begin, run.end, zeros[run.group]);
}

void SecondSteps::Put(uint64_t row, const uint8_t* codes) {
  ForRuns(row, [&](uint64_t begin, uint64_t end, int16_t zero) {
    if (small_) {
      int8_t* small = &out_.small[row * inputs_];
      const auto less = static_cast<uint8_t>(zero);
      for (uint64_t i = begin; i < end; ++i) {
        small[i] = static_cast<int8_t>(static_cast<uint8_t>(codes[i] - less));
      }
    } else {
      float* steps = &out_.steps[row * inputs_];
      for (uint64_t i = begin; i < end; ++i) {
        steps[i] = static_cast<float>(int32_t{codes[i]} - int32_t{zero});
      }
    }
  });
}

void SecondSteps::PutFields(uint64_t row, const uint8_t* bytes) {
  if (!small_ || !has_even_runs_ || inputs_ * bits_ % 8 != 0) {
    const uint64_t count = CeilDiv(inputs_ * bits_, uint64_t{8});
    codes_.resize(count * 8 / bits_);
    Kernels().split_small_fields(bytes, count, bits_, more_,
                                 reinterpret_cast<int8_t*>(codes_.data()));
    Put(row, codes_.data());
    return;
  }
  ForRuns(row, [&](uint64_t begin, uint64_t end, int16_t zero) {
    Kernels().split_small_fields(bytes + begin * bits_ / 8, (end - begin) * bits_ / 8, bits_,
                                 zero - more_, &out_.small[row * inputs_ + begin]);
  });
}

void PutSecondCodes(std::span<const uint8_t> codes, const std::array<float, kSecondCodes>& values,
                    bool takes_codes, DecodedRows& out) {
  out.Resize(codes.size(), takes_codes);
  if (takes_codes) {
    std::memcpy(out.small.data(), codes.data(), codes.size());
    out.values = values.data();
    return;
  }
  std::ranges::transform(codes, out.steps.begin(), [&](uint8_t code) { return values[code]; });
}

void PutSecondFp8(std::span<const uint8_t> codes, bool takes_codes, DecodedRows& out) {
  static const std::array<float, kSecondCodes> values = [] {
    std::array<float, kSecondCodes> all{};
    for (size_t byte = 0; byte < all.size(); ++byte) {
      all[byte] = F8E4M3ToF32(static_cast<uint8_t>(byte));
    }
    return all;
  }();
  uint8_t nan = 0;  // without a branch, so that the loop takes several at a time
  for (const uint8_t code : codes) nan |= static_cast<uint8_t>((code & 0x7FU) == 0x7FU ? 1U : 0U);
  PutSecondCodes(codes, values, takes_codes && nan == 0, out);
}

}  // namespace prepack
