// The second path for AWQ's three layouts. Written from the kernels' descriptions of the layouts,
// word by word, and not from the reader in formats/awq.

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

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
  out.steps.resize(wanted.rows * wanted.inputs);
  out.group_of.resize(wanted.inputs);
  for (uint64_t i = 0; i < wanted.inputs; ++i) {
    out.group_of[i] = (wanted.k0 + i) / (wanted.k / groups);
  }
  if (wanted.whole()) return {.first = 0, .count = groups};
  return CountFromFirstGroup(out.group_of);
}

// So many input channels of every row are unpacked before the next ones, so that what is read and
// written stays in the cache.
constexpr uint64_t kAwqInputsAtOnce = 16;

// qweight [K, N/8], qzeros [G, N/8], scales [G, N]. Quark says in which order nibbles are, and
// where it has no zero points, what it stores as them is 0, and its codes are two's complement.
Status DecodeGemm(const Checkpoint& source, const Tensors& tensors, const SecondRows& wanted,
                  DecodedRows& out) {
  const Json* order = SecondConfigField(source, "pack_method");
  const Json* zero_point = SecondConfigField(source, "zero_point");
  const std::array<unsigned, 8>& shifts =
      order != nullptr && *order == "order" ? kShiftInOrder : kShift;
  const int high = order != nullptr && zero_point != nullptr && *zero_point == false ? 8 : 0;
  const uint64_t groups = tensors.scales->shape[0];
  if (groups == 0 || wanted.k % groups != 0) return WrongShapes(source, tensors);
  const SecondGroupRange range = Prepare(wanted, groups, out);
  const uint64_t word0 = wanted.n0 / 8;
  const uint64_t words = (wanted.n0 + wanted.rows - 1) / 8 - word0 + 1;
  std::vector<uint32_t> codes;
  std::vector<uint32_t> zeros;
  std::vector<double> scales;
  Status status =
      ReadSecond(source, *tensors.codes, {wanted.k0, wanted.inputs, word0, words}, codes);
  if (status.ok() && tensors.zeros != nullptr) {
    status = ReadSecond(source, *tensors.zeros, {range.first, range.count, word0, words}, zeros);
  }
  if (status.ok()) {
    const SecondRange wanted_scales{range.first, range.count, wanted.n0, wanted.rows};
    status = ReadSecondFloats(source, *tensors.scales, wanted_scales, scales);
  }
  if (!status.ok()) return status;
  TransposeScales(scales, wanted.rows, out.scales);
  for (uint64_t first = 0; first < wanted.inputs; first += kAwqInputsAtOnce) {
    const uint64_t end = std::min(wanted.inputs, first + kAwqInputsAtOnce);
    for (uint64_t row = 0; row < wanted.rows; ++row) {
      const uint64_t n = wanted.n0 + row;
      const uint64_t word = n / 8 - word0;
      const unsigned shift = shifts[n % 8];
      for (uint64_t k = first; k < end; ++k) {
        const uint32_t code = codes[k * words + word] >> shift & 15U;
        const uint32_t zero =
            zeros.empty() ? 0 : zeros[out.group_of[k] * words + word] >> shift & 15U;
        out.steps[row * wanted.inputs + k] = static_cast<float>(
            (static_cast<int>(code) ^ high) - (zeros.empty() ? 8 : static_cast<int>(zero) ^ high));
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
