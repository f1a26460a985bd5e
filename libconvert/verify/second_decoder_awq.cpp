#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "verify/second_decoder_formats.h"
#include "verify/second_tensors.h"

namespace prepack {
namespace {

// Bits to shift a word of gemm by for channel n mod 8.
constexpr std::array<unsigned, 8> kShift = {0, 16, 4, 20, 8, 24, 12, 28};

struct Tensors {
  const StoredTensor* codes = nullptr;
  const StoredTensor* scales = nullptr;
  const StoredTensor* zeros = nullptr;  // nullptr: 8 throughout
};

Status WrongShapes(const Checkpoint& source, const Tensors& tensors) {
  return Malformed(source.Where(*tensors.codes),
                   "shapes of codes, scales and zero points disagree");
}

void Prepare(const SecondRows& wanted, DecodedRows& out) {
  out.steps.resize(wanted.rows * wanted.k);
  out.scales.resize(wanted.rows * wanted.k);
}

// qweight [K, N/8], qzeros [G, N/8], scales [G, N].
Status DecodeGemm(const Checkpoint& source, const Tensors& tensors, const SecondRows& wanted,
                  DecodedRows& out) {
  const uint64_t groups = tensors.scales->shape[0];
  if (groups == 0 || wanted.k % groups != 0) return WrongShapes(source, tensors);
  Prepare(wanted, out);
  const uint64_t word0 = wanted.n0 / 8;
  const uint64_t words = (wanted.n0 + wanted.rows - 1) / 8 - word0 + 1;
  std::vector<uint32_t> line;
  const auto field = [&](uint64_t row) {
    const uint64_t n = wanted.n0 + row;
    return static_cast<int>(line[n / 8 - word0] >> kShift[n % 8] & 15U);
  };
  std::vector<int> zeros(wanted.rows, 8);
  std::vector<double> scales;
  const uint64_t group_size = wanted.k / groups;
  for (uint64_t k = 0; k < wanted.k; ++k) {
    Status status;
    const uint64_t g = k / group_size;
    if (k % group_size == 0) {
      if (tensors.zeros != nullptr) {
        status = ReadSecond(source, *tensors.zeros, {g, 1, word0, words}, line);
        if (!status.ok()) return status;
        for (uint64_t row = 0; row < wanted.rows; ++row) zeros[row] = field(row);
      }
      status = ReadSecondFloats(source, *tensors.scales, {g, 1, wanted.n0, wanted.rows}, scales);
      if (!status.ok()) return status;
    }
    status = ReadSecond(source, *tensors.codes, {k, 1, word0, words}, line);
    if (!status.ok()) return status;
    for (uint64_t row = 0; row < wanted.rows; ++row) {
      out.steps[row * wanted.k + k] = static_cast<float>(field(row) - zeros[row]);
      out.scales[row * wanted.k + k] = scales[row];
    }
  }
  return {};
}

// G of the layouts whose tensors pad it.
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
  Prepare(wanted, out);
  std::vector<uint32_t> codes;
  std::vector<uint32_t> zeros;
  std::vector<double> scales;
  const uint64_t zero_words = (*groups + 7) / 8;
  Status status =
      ReadSecond(source, *tensors.codes, {wanted.n0, wanted.rows, 0, wanted.k / 8}, codes);
  if (status.ok()) {
    status = ReadSecond(source, *tensors.zeros, {wanted.n0, wanted.rows, 0, zero_words}, zeros);
  }
  if (status.ok()) {
    status =
        ReadSecondFloats(source, *tensors.scales, {wanted.n0, wanted.rows, 0, *groups}, scales);
  }
  if (!status.ok()) return status;
  for (uint64_t i = 0; i < out.steps.size(); ++i) {
    const uint64_t row = i / wanted.k;
    const uint64_t g = i % wanted.k / (wanted.k / *groups);
    const uint32_t zero = zeros[row * zero_words + g / 8] >> (4 * (g % 8)) & 15U;
    const uint32_t code = codes[i / 8] >> (4 * (i % 8)) & 15U;
    out.steps[i] = static_cast<float>(static_cast<int>(code) - static_cast<int>(zero));
    out.scales[i] = scales[row * *groups + g];
  }
  return {};
}

// qweight I16 [N/4, K]: four channels and 64 inputs in turns; qzeros and scales [P, N], the former
// −scale · z.
Status DecodeGemvFast(const Checkpoint& source, const Tensors& tensors, const SecondRows& wanted,
                      DecodedRows& out) {
  const std::optional<uint64_t> groups = ConfiguredGroups(source, wanted.k);
  if (!groups || *groups == 0 || tensors.zeros == nullptr) return WrongShapes(source, tensors);
  Prepare(wanted, out);
  std::vector<uint16_t> codes;
  std::vector<double> scale;
  std::vector<double> product;
  for (uint64_t row = 0; row < wanted.rows; ++row) {
    const uint64_t n = wanted.n0 + row;
    Status status = ReadSecond(source, *tensors.codes, {n / 4, 1, 0, wanted.k}, codes);
    if (status.ok()) {
      status = ReadSecondFloats(source, *tensors.scales, {0, *groups, n, 1}, scale);
    }
    if (status.ok()) {
      status = ReadSecondFloats(source, *tensors.zeros, {0, *groups, n, 1}, product);
    }
    if (!status.ok()) return status;
    for (uint64_t k = 0; k < wanted.k; ++k) {
      const uint64_t g = k / (wanted.k / *groups);
      const uint64_t column = k / 64 * 64 + n % 4 * 16 + k / 32 % 2 * 8 + k % 8;
      if (column >= codes.size()) return WrongShapes(source, tensors);
      const int code = codes[column] >> (k % 32 / 8 * 4) & 15;
      const double zero = scale[g] == 0 ? 0 : std::round(-product[g] / scale[g]);
      if (!(zero >= 0 && zero <= 15)) return WrongShapes(source, tensors);
      out.steps[row * wanted.k + k] = static_cast<float>(code) - static_cast<float>(zero);
      out.scales[row * wanted.k + k] = scale[g];
    }
  }
  return {};
}

}  // namespace

Status DecodeAwq(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  const Result<const StoredTensor*> codes = SecondTensor(source, wanted.module + ".qweight");
  if (!codes.ok()) return codes.status();
  const Result<const StoredTensor*> scales = SecondTensor(source, wanted.module + ".scales");
  if (!scales.ok()) return scales.status();
  Tensors tensors{.codes = *codes, .scales = *scales, .zeros = nullptr};
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
