#include "verify/second_gptq_tensors.h"

#include <vector>

#include "verify/second_tensors.h"

namespace prepack {
namespace {

// Field `index` of `bits` bits in a little-endian string of words `stride` apart.
uint32_t Field(const std::vector<uint32_t>& words, uint64_t first, uint64_t stride, uint64_t index,
               uint32_t bits) {
  uint32_t field = 0;
  for (uint32_t b = 0; b < bits; ++b) {
    const uint64_t bit = index * bits + b;
    field |= (words[first + bit / 32 * stride] >> (bit % 32) & 1U) << b;
  }
  return field;
}

// Zero points [groups, rows], from qzeros [G, N·bits/32].
Status ReadZeros(const Checkpoint& source, const SecondRows& wanted, const SecondZeros& meaning,
                 uint32_t width, uint64_t groups, std::vector<int>& zeros) {
  const Result<const StoredTensor*> stored = SecondTensor(source, wanted.module + ".qzeros");
  if (!stored.ok()) return stored.status();
  if (meaning.minus_one && width == 3) {
    return Unsupported(source.Where(**stored), "zero points of 3 bits that are stored as z - 1");
  }
  const bool matrix = (*stored)->shape.size() == 2;
  const uint64_t line_words = matrix ? (*stored)->shape[1] : 0;
  if (line_words * 32 < (wanted.n0 + wanted.rows) * width) {
    return Malformed(source.Where(**stored), "shapes of codes, scales and zero points disagree");
  }
  // Adding 1 to every field of a word undoes a borrow that went from field to field.
  uint32_t ones = 0;
  for (uint32_t shift = 0; shift < 32; shift += width) ones |= 1U << shift;
  std::vector<uint32_t> line;
  for (uint64_t g = 0; g < groups; ++g) {
    Status status = ReadSecond(source, **stored, {g, 1, 0, line_words}, line);
    if (!status.ok()) return status;
    if (meaning.minus_one) {
      for (uint32_t& word : line) word += ones;
    }
    for (uint64_t row = 0; row < wanted.rows; ++row) {
      zeros[g * wanted.rows + row] = static_cast<int>(Field(line, 0, 1, wanted.n0 + row, width));
    }
  }
  return {};
}

// g_idx, where there is one, must name k / group size, or say nothing.
Status CheckNaturalOrder(const Checkpoint& source, const SecondRows& wanted, uint64_t group_size) {
  const StoredTensor* tensor = source.Find(wanted.module + ".g_idx");
  if (tensor == nullptr || tensor->dtype != DType::kI32) return {};
  std::vector<uint32_t> index(wanted.k);
  Status status = source.Read(*tensor, 0, std::as_writable_bytes(std::span(index)));
  if (!status.ok()) return status;
  for (uint64_t k = 0; k < wanted.k; ++k) {
    if (index[k] == k / group_size || index[k] == 0 || index[k] == UINT32_MAX) continue;
    return Unsupported(source.Where(*tensor), "no second decoder for activation order");
  }
  return {};
}

}  // namespace

Status DecodeGptqTensors(const Checkpoint& source, const SecondRows& wanted,
                         const SecondZeros& meaning, DecodedRows& out) {
  const Result<const StoredTensor*> codes = SecondTensor(source, wanted.module + ".qweight");
  if (!codes.ok()) return codes.status();
  const Result<const StoredTensor*> scales = SecondTensor(source, wanted.module + ".scales");
  if (!scales.ok()) return scales.status();
  const auto wrong = [&] {
    return Malformed(source.Where(**codes), "shapes of codes, scales and zero points disagree");
  };
  if ((*codes)->shape.size() != 2 || (*scales)->shape.size() != 2 || wanted.k == 0) return wrong();
  const uint64_t groups = (*scales)->shape[0];
  const uint64_t words = (*codes)->shape[0];
  const uint64_t bits = words * 32 / wanted.k;
  if (groups == 0 || wanted.k % groups != 0 || bits == 0 || bits > 8 ||
      words * 32 != wanted.k * bits) {
    return wrong();
  }
  const auto width = static_cast<uint32_t>(bits);
  const uint64_t group_size = wanted.k / groups;
  Status status = CheckNaturalOrder(source, wanted, group_size);
  if (!status.ok()) return status;
  std::vector<uint32_t> packed;
  status = ReadSecond(source, **codes, {0, words, wanted.n0, wanted.rows}, packed);
  std::vector<double> columns;
  if (status.ok()) {
    status = ReadSecondFloats(source, **scales, {0, groups, wanted.n0, wanted.rows}, columns);
  }
  if (!status.ok()) return status;
  std::vector<int> zeros(groups * wanted.rows, 1 << (width - 1));
  if (!meaning.symmetric) {
    status = ReadZeros(source, wanted, meaning, width, groups, zeros);
    if (!status.ok()) return status;
  }
  out.groups = groups;
  out.steps.resize(wanted.rows * wanted.k);
  out.scales.resize(wanted.rows * groups);
  for (uint64_t row = 0; row < wanted.rows; ++row) {
    for (uint64_t k = 0; k < wanted.k; ++k) {
      const uint64_t g = k / group_size;
      const auto code = static_cast<int>(Field(packed, row, wanted.rows, k, width));
      out.steps[row * wanted.k + k] = static_cast<int16_t>(code - zeros[g * wanted.rows + row]);
      out.scales[row * groups + g] = columns[g * wanted.rows + row];
    }
  }
  return {};
}

}  // namespace prepack
