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
#include "prepack/verify/second/decoder.h"
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

// So many input channels of a word's output channels are unpacked together: a cache line of steps
// for each.
constexpr uint64_t kAwqInputsAtOnce = 64;
// Of so many, the codes of one output channel are in a register.
constexpr uint64_t kInputs = 16;
using Words [[gnu::vector_size(kInputs)]] = uint32_t;
using Bytes [[gnu::vector_size(kInputs)]] = uint8_t;

// Every other byte of two registers, the first ones or the second ones.
Bytes EvenBytes(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
Bytes OddBytes(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

// Bytes of 16 words, which lie `stride` apart, by their place in the word, the lowest first.
std::array<Bytes, 4> BytesOfWords(const uint32_t* words, uint64_t stride) {
  std::array<Bytes, 4> four;
  for (Bytes& some : four) {
    some = reinterpret_cast<Bytes>(
        Words{words[0], words[stride], words[2 * stride], words[3 * stride]});
    words += 4 * stride;
  }
  const Bytes even = EvenBytes(four[0], four[1]);
  const Bytes more_even = EvenBytes(four[2], four[3]);
  const Bytes odd = OddBytes(four[0], four[1]);
  const Bytes more_odd = OddBytes(four[2], four[3]);
  return {EvenBytes(even, more_even), EvenBytes(odd, more_odd), OddBytes(even, more_even),
          OddBytes(odd, more_odd)};
}

// What gemm's words hold, [inputs, words] and [groups, words].
struct GemmWords {
  std::array<unsigned, 8> shifts = kShift;
  uint8_t high = 0;  // 8 where codes are two's complement
  uint64_t words = 0;
  std::vector<uint32_t> codes = {};  // zeros behind them, up to a multiple of 16 input channels
  std::vector<uint32_t> zeros = {};  // none: 8 throughout

  uint8_t ZeroOf(uint64_t group, uint64_t word, unsigned shift) const {
    if (zeros.empty()) return 8;
    return static_cast<uint8_t>((zeros[group * words + word] >> shift & 15U) ^ high);
  }
  // Of input channels of these groups, 16 or fewer.
  Bytes ZerosOf(std::span<const uint64_t> group_of, uint64_t word, unsigned shift) const {
    if (group_of.front() == group_of.back()) {
      return Bytes{} + ZeroOf(group_of.front(), word, shift);
    }
    Bytes each = {};
    for (size_t i = 0; i < group_of.size(); ++i) each[i] = ZeroOf(group_of[i], word, shift);
    return each;
  }
};

void PutSteps(const Bytes& steps, uint64_t at, uint64_t count, DecodedRows& out) {
  if (!out.small.empty()) {
    std::memcpy(&out.small[at], &steps, count);
    return;
  }
  for (uint64_t i = 0; i < count; ++i) {
    out.steps[at + i] = static_cast<float>(static_cast<int8_t>(steps[i]));
  }
}

// Up to 16 input channels of the output channels of one word, as far as they are wanted.
void UnpackWord(const GemmWords& gemm, const SecondRows& wanted, uint64_t word, uint64_t first,
                DecodedRows& out) {
  const uint64_t count = std::min(kInputs, wanted.inputs - first);
  const std::array bytes = BytesOfWords(&gemm.codes[first * gemm.words + word], gemm.words);
  const std::span group_of = std::span(out.group_of).subspan(first, count);
  const uint64_t n = (wanted.n0 / 8 + word) * 8;
  for (uint64_t i = 0; i < 8; ++i) {
    if (n + i < wanted.n0 || n + i >= wanted.n0 + wanted.rows) continue;
    const unsigned shift = gemm.shifts[i];
    const Bytes codes = bytes[shift / 8] >> shift % 8 & 15;
    const Bytes steps = (codes ^ gemm.high) - gemm.ZerosOf(group_of, word, shift);
    PutSteps(steps, (n + i - wanted.n0) * wanted.inputs + first, count, out);
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
  const uint64_t word0 = wanted.n0 / 8;
  GemmWords gemm{.words = (wanted.n0 + wanted.rows - 1) / 8 - word0 + 1};
  if (order != nullptr && *order == "order") gemm.shifts = kShiftInOrder;
  if (order != nullptr && zero_point != nullptr && *zero_point == false) gemm.high = 8;
  PREPACK_TRY(ReadSecond(source, *tensors.codes, {wanted.k0, wanted.inputs, word0, gemm.words},
                         gemm.codes));
  if (tensors.zeros != nullptr) {
    PREPACK_TRY(ReadSecond(source, *tensors.zeros, {range.first, range.count, word0, gemm.words},
                           gemm.zeros));
  }
  std::vector<double> scales;
  PREPACK_TRY(ReadSecondFloats(source, *tensors.scales,
                               {range.first, range.count, wanted.n0, wanted.rows}, scales));
  TransposeScales(scales, wanted.rows, out.scales);
  out.Resize(wanted.rows * wanted.inputs, wanted.takes_small);
  gemm.codes.resize(CeilDiv(wanted.inputs, kInputs) * kInputs * gemm.words);
  for (uint64_t begin = 0; begin < wanted.inputs; begin += kAwqInputsAtOnce) {
    const uint64_t end = std::min(wanted.inputs, begin + kAwqInputsAtOnce);
    for (uint64_t word = 0; word < gemm.words; ++word) {
      for (uint64_t first = begin; first < end; first += kInputs) {
        UnpackWord(gemm, wanted, word, first, out);
      }
    }
  }
  return {};
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
  out.Resize(wanted.rows * wanted.inputs, /*as_small=*/false);
  std::vector<uint32_t> codes;
  std::vector<uint32_t> zeros;
  const uint64_t zero_word0 = range.first / 8;
  const uint64_t zero_words = (range.first + range.count + 7) / 8 - zero_word0;
  Status status = ReadSecond(source, *tensors.codes,
                             {wanted.n0, wanted.rows, wanted.k0 / 8, wanted.inputs / 8}, codes);
  if (status.ok()) {
    status =
        ReadSecond(source, *tensors.zeros, {wanted.n0, wanted.rows, zero_word0, zero_words}, zeros);
  }
  if (status.ok()) {
    const SecondRange wanted_scales{wanted.n0, wanted.rows, range.first, range.count};
    status = ReadSecondFloats(source, *tensors.scales, wanted_scales, out.scales);
  }
  if (!status.ok()) return status;
  const SecondFields fields{.bits = 4};
  std::vector<float> zeros_of_row(zero_words * 8);  // of whole words
  for (uint64_t row = 0; row < wanted.rows; ++row) {
    fields.Unpack(std::span(zeros).subspan(row * zero_words), 0, zeros_of_row);
    const auto steps = std::span(out.steps).subspan(row * wanted.inputs, wanted.inputs);
    fields.Unpack(std::span(codes).subspan(row * wanted.inputs / 8), 0, steps);
    const auto zeros_of_groups = std::span(zeros_of_row).subspan(range.first % 8);
    for (uint64_t i = 0; i < wanted.inputs; ++i) steps[i] -= zeros_of_groups[out.group_of[i]];
  }
  return {};
}

// Where the field of weight (n, k) lies in its line of gemv_fast.
uint64_t ColumnOf(uint64_t n, uint64_t k) {
  return k / 64 * 64 + n % 4 * 16 + k / 32 % 2 * 8 + k % 8;
}

// qweight I16 [N/4, K]: four channels and 64 inputs in turns; qzeros and scales [P, N], the former
// −scale · z.
Status DecodeGemvFast(const Checkpoint& source, const Tensors& tensors, const SecondRows& wanted,
                      DecodedRows& out) {
  const std::optional<uint64_t> groups = ConfiguredGroups(source, wanted.k);
  // Turns are of 64 inputs.
  if (!groups || *groups == 0 || tensors.zeros == nullptr || wanted.k % 64 != 0) {
    return WrongShapes(source, tensors);
  }
  const SecondGroupRange range = Prepare(wanted, *groups, out);
  out.Resize(wanted.rows * wanted.inputs, /*as_small=*/false);
  out.scales.clear();
  std::vector<uint16_t> codes;
  std::vector<double> scale;
  std::vector<double> product;
  std::vector<float> zeros;
  for (uint64_t row = 0; row < wanted.rows; ++row) {
    const uint64_t n = wanted.n0 + row;
    Status status = ReadSecond(source, *tensors.codes, {n / 4, 1, wanted.k0, wanted.inputs}, codes);
    if (status.ok()) {
      status = ReadSecondFloats(source, *tensors.scales, {range.first, range.count, n, 1}, scale);
    }
    if (status.ok()) {
      status = ReadSecondFloats(source, *tensors.zeros, {range.first, range.count, n, 1}, product);
    }
    if (!status.ok()) return status;
    zeros.clear();
    for (uint64_t g = 0; g < range.count; ++g) {
      const double zero = scale[g] == 0 ? 0 : std::round(-product[g] / scale[g]);
      if (!(zero >= 0 && zero <= 15)) return WrongShapes(source, tensors);
      zeros.push_back(static_cast<float>(zero));
      out.scales.push_back(scale[g]);
    }
    // Slabs begin with a turn of 64 inputs.
    for (uint64_t i = 0; i < wanted.inputs; ++i) {
      const int code = codes[ColumnOf(n, i)] >> (i % 32 / 8 * 4) & 15;
      out.steps[row * wanted.inputs + i] = static_cast<float>(code) - zeros[out.group_of[i]];
    }
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
