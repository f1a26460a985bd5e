#include "verify/second_gptq.h"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "base/float_convert.h"

namespace prepack {
namespace {

// A matrix tensor of the module with elements of `bits` bits.
Result<const StoredTensor*> FindMatrix(const Checkpoint& source, const std::string& name,
                                       uint64_t bits) {
  const StoredTensor* tensor = source.Find(name);
  if (tensor == nullptr) return Malformed(fmt::format("tensor {}", name), "it is missing");
  const bool sound = tensor->shape.size() == 2 && DTypeBits(tensor->dtype) == bits &&
                     tensor->shape[0] > 0 && tensor->shape[1] > 0;
  if (sound) return tensor;
  return Malformed(source.Where(*tensor), "not a matrix of the expected element size");
}

// Elements [row, column …] of a matrix.
template <typename T>
Status ReadPart(const Checkpoint& source, const StoredTensor& tensor, uint64_t row, uint64_t column,
                std::span<T> out) {
  const uint64_t offset = (row * tensor.shape[1] + column) * sizeof(T);
  return source.Read(tensor, offset, std::as_writable_bytes(out));
}

struct Declared {
  bool symmetric = true;
  bool minus_one = true;
};

Declared DeclaredBy(const Checkpoint& source) {
  Declared declared;
  const auto config = source.config().find("quantization_config");
  if (config == source.config().end() || !config->is_object()) return declared;
  if (const auto sym = config->find("sym"); sym != config->end() && sym->is_boolean()) {
    declared.symmetric = sym->get<bool>();
  }
  for (const char* key : {"checkpoint_format", "format"}) {
    const auto format = config->find(key);
    if (format != config->end() && *format == Json("gptq_v2")) declared.minus_one = false;
  }
  return declared;
}

// One bit after the other.
int Field(std::span<const uint32_t> words, uint64_t bits, uint64_t index) {
  unsigned value = 0;
  for (uint64_t bit = 0; bit < bits; ++bit) {
    const uint64_t at = index * bits + bit;
    value |= (words[at / 32] >> at % 32 & 1U) << bit;
  }
  return static_cast<int>(value);
}

// z of all channels of one group from its row of qzeros. Where z − 1 is stored, the writer borrowed
// from the next field of a word; here the carry goes back. 3-bit fields cross words and wrapped.
std::vector<int> ZeroPoints(std::span<const uint32_t> words, uint64_t bits, uint64_t n,
                            bool minus_one) {
  std::vector<int> zeros(n);
  int carry = 0;
  for (uint64_t i = 0; i < n; ++i) {
    const bool word_starts = i * bits % 32 == 0;
    if (word_starts || bits == 3) carry = 0;
    const int sum = Field(words, bits, i) + (minus_one ? 1 : 0) + carry;
    zeros[i] = sum % (1 << bits);
    carry = sum >> bits;
  }
  return zeros;
}

Status CheckNaturalOrder(const Checkpoint& source, const std::string& module, uint64_t k,
                         uint64_t group_size) {
  const StoredTensor* tensor = source.Find(module + ".g_idx");
  if (tensor == nullptr || tensor->dtype != DType::kI32) return {};
  std::vector<uint32_t> index(k);
  Status status = source.Read(*tensor, 0, std::as_writable_bytes(std::span(index)));
  if (!status.ok()) return status;
  for (uint64_t i = 0; i < k; ++i) {
    if (index[i] == i / group_size || index[i] == 0 || index[i] == UINT32_MAX) continue;
    return Unsupported(source.Where(*tensor), "no second decoder for activation order");
  }
  return {};
}

}  // namespace

Status DecodeGptqRows(const Checkpoint& source, const std::string& module, uint64_t k, uint64_t n0,
                      uint64_t rows, DecodedRows& out) {
  const Result<const StoredTensor*> qweight = FindMatrix(source, module + ".qweight", 32);
  if (!qweight.ok()) return qweight.status();
  const Result<const StoredTensor*> qzeros = FindMatrix(source, module + ".qzeros", 32);
  if (!qzeros.ok()) return qzeros.status();
  const StoredTensor* named_scales = source.Find(module + ".scales");
  const bool wide = named_scales != nullptr && named_scales->dtype == DType::kF32;
  const Result<const StoredTensor*> scales = FindMatrix(source, module + ".scales", wide ? 32 : 16);
  if (!scales.ok()) return scales.status();

  const uint64_t n = (*qweight)->shape[1];
  const uint64_t words = (*qweight)->shape[0];
  const uint64_t groups = (*scales)->shape[0];
  const uint64_t bits = k == 0 ? 0 : words * 32 / k;
  const bool fits = (bits == 2 || bits == 3 || bits == 4 || bits == 8) && words * 32 == k * bits &&
                    (*scales)->shape[1] == n && (*qzeros)->shape[0] == groups &&
                    (*qzeros)->shape[1] >= (n * bits + 31) / 32 && k % groups == 0 && n0 <= n &&
                    rows <= n - n0;
  if (!fits) {
    return Malformed(source.Where(**qweight), "shapes of codes, scales and zero points disagree");
  }
  const uint64_t group_size = k / groups;
  Status status = CheckNaturalOrder(source, module, k, group_size);

  const Declared declared = DeclaredBy(source);
  out.groups = groups;
  out.scales.resize(rows * groups);
  std::vector<int> zeros(rows * groups, 1 << (bits - 1));
  std::vector<uint32_t> zero_words((*qzeros)->shape[1]);
  std::vector<uint16_t> halves(rows);
  std::vector<float> floats(rows);
  for (uint64_t g = 0; g < groups && status.ok(); ++g) {
    status = wide ? ReadPart(source, **scales, g, n0, std::span(floats))
                  : ReadPart(source, **scales, g, n0, std::span(halves));
    for (uint64_t row = 0; row < rows; ++row) {
      const bool bf16 = (*scales)->dtype == DType::kBF16;
      if (!wide) floats[row] = bf16 ? BF16ToF32(halves[row]) : F16ToF32(halves[row]);
      out.scales[row * groups + g] = static_cast<double>(floats[row]);
    }
    if (declared.symmetric || !status.ok()) continue;
    status = ReadPart(source, **qzeros, g, 0, std::span(zero_words));
    const std::vector<int> of_group = ZeroPoints(zero_words, bits, n, declared.minus_one);
    for (uint64_t row = 0; row < rows; ++row) zeros[row * groups + g] = of_group[n0 + row];
  }

  // Column by column: the words of one channel lie one row of the matrix apart.
  std::vector<uint32_t> slab(words * rows);
  for (uint64_t word = 0; word < words && status.ok(); ++word) {
    status = ReadPart(source, **qweight, word, n0, std::span(slab).subspan(word * rows, rows));
  }
  if (!status.ok()) return status;
  out.steps.resize(rows * k);
  std::vector<uint32_t> column(words);
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t word = 0; word < words; ++word) column[word] = slab[word * rows + row];
    for (uint64_t i = 0; i < k; ++i) {
      const int zero = zeros[row * groups + i / group_size];
      out.steps[row * k + i] = static_cast<int16_t>(Field(column, bits, i) - zero);
    }
  }
  return {};
}

}  // namespace prepack
