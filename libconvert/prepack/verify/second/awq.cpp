// The second path for AWQ's three layouts. Written from the kernels' descriptions of the layouts,
// word by word, and not from the reader in formats/awq.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/verify/byte_places.h"
#include "prepack/verify/second/decoder.h"
#include "prepack/verify/second/fields.h"
#include "prepack/verify/second/tensors.h"

namespace prepack {
namespace {

// Bits to shift a word of gemm by for channel n mod 8.
constexpr std::array<unsigned, 8> kShift = {0, 16, 4, 20, 8, 24, 12, 28};
constexpr std::array<unsigned, 8> kShiftInOrder = {0, 4, 8, 12, 16, 20, 24, 28};

struct Tensors {
  const StoredTensor* codes = nullptr;
  const StoredTensor* scales = nullptr;
  const StoredTensor* zeros = nullptr;  // nullptr: 8 throughout
};

Status WrongShapes(const Checkpoint& source, const Tensors& tensors) {
  return Malformed(source.Where(*tensors.codes),
                   "shapes of codes, scales and zero points disagree");
}

// Consecutive groups: all of them, or the wanted ones.
SecondGroupRange Prepare(const SecondRows& wanted, uint64_t groups, DecodedRows& out) {
  const uint64_t size = wanted.k / groups;
  out.group_of.clear();
  while (out.group_of.size() < wanted.inputs) {
    const uint64_t k = wanted.k0 + out.group_of.size();
    const uint64_t left = std::min(size - k % size, wanted.inputs - out.group_of.size());
    out.group_of.insert(out.group_of.end(), left, k / size);
  }
  if (wanted.whole()) return {.first = 0, .count = groups};
  return CountFromFirstGroup(out.group_of);
}

constexpr uint64_t kOfWord = 8;
// So many words of an input channel, a line of the cache, are split together.
constexpr uint64_t kWordColumns = 16;
// Of so many input channels, the codes of one output channel are in a register.
constexpr uint64_t kInputs = sizeof(Bytes);

// Codes of 16 input channels: lines [8, stride] in the order of the nibbles of a word. Flipped:
// where codes are two's complement, 8.
void SplitNibbles(const uint32_t* words, uint8_t flip, uint64_t stride, uint8_t* codes) {
  for (const Bytes& bytes : TakeApart(LoadFour(words))) {
    const Bytes low = (bytes & 15) ^ flip;
    const Bytes high = (bytes >> 4) ^ flip;
    std::memcpy(codes, &low, sizeof low);
    std::memcpy(codes + stride, &high, sizeof high);
    codes += 2 * stride;
  }
}

// Some words [inputs, columns] of many that lie `stride` apart, and the codes that they hold.
struct WordColumns {
  uint64_t columns = 0;
  uint64_t inputs = 0;
  uint64_t stride = 0;

  // From one line of codes to the next: a line of the cache more than needed, so that those of many
  // do not lie in the same places of it.
  uint64_t code_stride() const { return CeilDiv(inputs, kInputs) * kInputs + 64; }
  // Codes [8 · columns, code_stride()].
  void Split(const std::byte* words, uint8_t flip, std::vector<uint8_t>& codes) const;
};

void WordColumns::Split(const std::byte* words, uint8_t flip, std::vector<uint8_t>& codes) const {
  codes.resize(kOfWord * columns * code_stride());
  std::array<uint32_t, kWordColumns * kInputs> turned{};
  for (uint64_t first = 0; first < inputs; first += kInputs) {
    TurnSecondWords(words + first * stride * sizeof(uint32_t), std::min(kInputs, inputs - first),
                    columns, stride, kInputs, turned.data());
    for (uint64_t column = 0; column < columns; ++column) {
      SplitNibbles(&turned[column * kInputs], flip, code_stride(),
                   &codes[kOfWord * column * code_stride() + first]);
    }
  }
}

// qweight [K, N/8], qzeros [G, N/8], scales [G, N]. Quark says in which order nibbles are, and
// where it has no zero points, what it stores as them is 0, and its codes are two's complement.
Status DecodeGemm(const Checkpoint& source, const Tensors& tensors, const SecondRows& wanted,
                  DecodedRows& out) {
  const Json* order = SecondConfigField(source, "pack_method");
  const Json* zero_point = SecondConfigField(source, "zero_point");
  const uint64_t groups = tensors.scales->shape[0];
  if (groups == 0 || wanted.k % groups != 0) return WrongShapes(source, tensors);
  const SecondGroupRange range = Prepare(wanted, groups, out);
  const uint64_t word0 = wanted.n0 / kOfWord;
  const uint64_t words = (wanted.n0 + wanted.rows - 1) / kOfWord - word0 + 1;
  const auto& shifts = order != nullptr && *order == "order" ? kShiftInOrder : kShift;
  const bool is_signed = order != nullptr && zero_point != nullptr && *zero_point == false;
  const uint8_t flip = is_signed ? 8 : 0;
  DecodedRows::Buffers& buffers = out.buffers;
  std::vector<int16_t> zeros = {8};
  if (tensors.zeros != nullptr) {
    std::vector<uint32_t> of_groups;
    PREPACK_TRY(
        ReadSecond(source, *tensors.zeros, {range.first, range.count, word0, words}, of_groups));
    zeros.resize(wanted.rows * range.count);
    for (uint64_t row = 0; row < wanted.rows; ++row) {
      const uint64_t n = wanted.n0 + row;
      const uint32_t* word = &of_groups[n / kOfWord - word0];
      for (uint64_t g = 0; g < range.count; ++g, word += words) {
        zeros[row * range.count + g] =
            static_cast<int16_t>((*word >> shifts[n % kOfWord] & 15U) ^ flip);
      }
    }
  }
  PREPACK_TRY(ReadSecondFloats(source, *tensors.scales,
                               {range.first, range.count, wanted.n0, wanted.rows},
                               buffers.numbers));
  TransposeScales(buffers.numbers, wanted.rows, out.scales);
  PREPACK_TRY_ASSIGN(const ByteRuns lines,
                     RunsOfSecond(source, *tensors.codes, {wanted.k0, wanted.inputs, word0, words},
                                  sizeof(uint32_t)));
  SecondSteps steps(4, zeros, wanted.rows, wanted.takes_small, out);
  return source.VisitRuns(*tensors.codes, lines, [&](const std::byte* stored) {
    for (uint64_t word = 0; word < words; word += kWordColumns) {
      const WordColumns some = {.columns = std::min(kWordColumns, words - word),
                                .inputs = wanted.inputs,
                                .stride = tensors.codes->shape[1]};
      some.Split(stored + word * sizeof(uint32_t), flip, buffers.codes);
      for (uint64_t i = 0; i < kOfWord * some.columns; ++i) {
        const uint64_t n = (word0 + word) * kOfWord + i;
        if (n < wanted.n0 || n >= wanted.n0 + wanted.rows) continue;
        const uint64_t line = i / kOfWord * kOfWord + shifts[i % kOfWord] / 4;
        steps.Put(n - wanted.n0, &buffers.codes[line * some.code_stride()]);
      }
    }
  });
}

// G in layouts whose tensors pad it.
std::optional<uint64_t> ConfiguredGroups(const Checkpoint& source, uint64_t k) {
  for (const char* key : {"group_size", "q_group_size"}) {
    const Json* size = SecondConfigField(source, key);
    if (size == nullptr || !size->is_number_integer()) continue;
    const auto value = size->get<int64_t>();
    if (value == -1) return 1;
    if (value <= 0 || k % static_cast<uint64_t>(value) != 0) return std::nullopt;
    return k / static_cast<uint64_t>(value);
  }
  return k % 128 == 0 ? std::optional(k / 128) : std::nullopt;
}

// qweight [N, K/8], qzeros [N, P/8], scales [N, P], P ≥ G.
Status DecodeGemv(const Checkpoint& source, const Tensors& tensors, const SecondRows& wanted,
                  DecodedRows& out) {
  const std::optional<uint64_t> groups = ConfiguredGroups(source, wanted.k);
  if (!groups || *groups == 0 || tensors.zeros == nullptr || wanted.k % 8 != 0) {
    return WrongShapes(source, tensors);
  }
  const SecondGroupRange range = Prepare(wanted, *groups, out);
  std::vector<uint32_t> words;
  const uint64_t zero_word0 = range.first / kOfWord;
  const uint64_t zero_words = (range.first + range.count + kOfWord - 1) / kOfWord - zero_word0;
  PREPACK_TRY(
      ReadSecond(source, *tensors.zeros, {wanted.n0, wanted.rows, zero_word0, zero_words}, words));
  const SecondFields fields{.bits = 4};
  std::vector<int16_t> zeros(wanted.rows * range.count);
  for (uint64_t row = 0; row < wanted.rows; ++row) {
    const std::span line = std::span(words).subspan(row * zero_words, zero_words);
    for (uint64_t g = 0; g < range.count; ++g) {
      zeros[row * range.count + g] =
          static_cast<int16_t>(fields.At(line, range.first % kOfWord + g));
    }
  }
  PREPACK_TRY(ReadSecondFloats(source, *tensors.scales,
                               {wanted.n0, wanted.rows, range.first, range.count}, out.scales));
  const uint64_t words_of_row = wanted.inputs / kOfWord;
  std::vector<uint32_t>& codes = out.buffers.words;
  PREPACK_TRY(ReadSecond(source, *tensors.codes,
                         {wanted.n0, wanted.rows, wanted.k0 / kOfWord, words_of_row}, codes));
  SecondSteps steps(4, zeros, wanted.rows, wanted.takes_small, out);
  for (uint64_t row = 0; row < wanted.rows; ++row) {
    steps.PutFields(row, reinterpret_cast<const uint8_t*>(&codes[row * words_of_row]));
  }
  return {};
}

constexpr uint64_t kTurn = 64;  // input channels of one of four output channels
using HalfWords [[gnu::vector_size(16)]] = uint16_t;
using EightBytes [[gnu::vector_size(8)]] = uint8_t;

// The codes of output channel `n` in a line of gemv_fast, which holds four of them: in a turn each
// has 16 half words, of which the first eight hold inputs 0 to 31, those of input k % 8 from the
// lowest nibble on.
void SplitTurns(const uint16_t* line, uint64_t n, uint64_t inputs, uint8_t* codes) {
  for (uint64_t k = 0; k < inputs; k += kTurn / 2) {
    HalfWords words;
    std::memcpy(&words, line + k / kTurn * kTurn + n % 4 * 16 + k / 32 % 2 * 8, sizeof words);
    for (uint64_t i = 0; i < 4; ++i, codes += sizeof(EightBytes)) {
      const EightBytes eight = __builtin_convertvector(words & 15, EightBytes);
      std::memcpy(codes, &eight, sizeof eight);
      words >>= 4;
    }
  }
}

// qweight I16 [N/4, K]: four channels and 64 inputs in turns; qzeros and scales [P, N], the former
// −scale · z.
Status DecodeGemvFast(const Checkpoint& source, const Tensors& tensors, const SecondRows& wanted,
                      DecodedRows& out) {
  const std::optional<uint64_t> groups = ConfiguredGroups(source, wanted.k);
  // Turns are of 64 inputs.
  if (!groups || *groups == 0 || tensors.zeros == nullptr || wanted.k % kTurn != 0) {
    return WrongShapes(source, tensors);
  }
  const SecondGroupRange range = Prepare(wanted, *groups, out);
  DecodedRows::Buffers& buffers = out.buffers;
  const SecondRange parameters{range.first, range.count, wanted.n0, wanted.rows};
  PREPACK_TRY(ReadSecondFloats(source, *tensors.scales, parameters, buffers.numbers));
  TransposeScales(buffers.numbers, wanted.rows, out.scales);
  PREPACK_TRY(ReadSecondFloats(source, *tensors.zeros, parameters, buffers.numbers));
  std::vector<double> products;
  TransposeScales(buffers.numbers, wanted.rows, products);
  std::vector<int16_t> zeros;
  for (uint64_t i = 0; i < products.size(); ++i) {
    const double zero = out.scales[i] == 0 ? 0 : std::round(-products[i] / out.scales[i]);
    if (!(zero >= 0 && zero <= 15)) return WrongShapes(source, tensors);
    zeros.push_back(static_cast<int16_t>(zero));
  }
  const uint64_t line0 = wanted.n0 / 4;
  const uint64_t lines = (wanted.n0 + wanted.rows - 1) / 4 - line0 + 1;
  // Slabs begin with a turn.
  PREPACK_TRY(
      ReadSecond(source, *tensors.codes, {line0, lines, wanted.k0, wanted.inputs}, buffers.halves));
  SecondSteps steps(4, zeros, wanted.rows, wanted.takes_small, out);
  buffers.codes.resize(wanted.inputs);
  for (uint64_t row = 0; row < wanted.rows; ++row) {
    const uint64_t n = wanted.n0 + row;
    SplitTurns(&buffers.halves[(n / 4 - line0) * wanted.inputs], n, wanted.inputs,
               buffers.codes.data());
    steps.Put(row, buffers.codes.data());
  }
  return {};
}

}  // namespace

Status DecodeAwq(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  PREPACK_TRY_ASSIGN(const StoredTensor* codes, SecondTensor(source, wanted.module + ".qweight"));
  PREPACK_TRY_ASSIGN(const StoredTensor* scales, SecondTensor(source, wanted.module + ".scales"));
  Tensors tensors{.codes = codes, .scales = scales, .zeros = nullptr};
  for (const char* suffix : {".qzeros", ".scaled_zeros"}) {
    if (const StoredTensor* zeros = source.Find(wanted.module + suffix)) tensors.zeros = zeros;
  }
  if (tensors.codes->shape.size() != 2 || tensors.scales->shape.size() != 2 || wanted.rows == 0 ||
      wanted.k == 0) {
    return WrongShapes(source, tensors);
  }
  if (tensors.codes->dtype == DType::kI16) return DecodeGemvFast(source, tensors, wanted, out);
  if (tensors.codes->shape[0] == wanted.k && tensors.scales->shape[0] < wanted.k) {
    return DecodeGemm(source, tensors, wanted, out);
  }
  return DecodeGemv(source, tensors, wanted, out);
}

}  // namespace prepack
