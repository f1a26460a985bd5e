#include "verify/second_decoder.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "base/checked.h"
#include "base/float_convert.h"
#include "verify/second_decoder_formats.h"

namespace prepack {
namespace {

constexpr uint64_t kCodesPerWord = 8;

Result<const StoredTensor*> FindTensor(const Checkpoint& source, const std::string& name) {
  const StoredTensor* tensor = source.Find(name);
  if (tensor == nullptr) return Malformed(fmt::format("tensor {}", name), "it is missing");
  return tensor;
}

// Rows [row, row + rows) of a 2-D tensor as raw elements of type T.
template <typename T>
Status ReadRows(const Checkpoint& source, const StoredTensor& tensor, uint64_t row, uint64_t rows,
                std::vector<T>& out) {
  if (tensor.shape.size() != 2 || DTypeBits(tensor.dtype) != 8 * sizeof(T)) {
    return Malformed(source.Where(tensor), "not a matrix of the expected element size");
  }
  const uint64_t columns = tensor.shape[1];
  out.resize(rows * columns);
  return source.Read(tensor, row * columns * sizeof(T), std::as_writable_bytes(std::span(out)));
}

Status ReadScales(const Checkpoint& source, const StoredTensor& tensor, uint64_t n0, uint64_t rows,
                  std::vector<double>& scales) {
  scales.clear();
  if (tensor.dtype == DType::kF32) {
    std::vector<float> values;
    Status status = ReadRows(source, tensor, n0, rows, values);
    scales.assign(values.begin(), values.end());
    return status;
  }
  std::vector<uint16_t> bits;
  Status status = ReadRows(source, tensor, n0, rows, bits);
  const bool bf16 = tensor.dtype == DType::kBF16;
  for (const uint16_t value : bits) {
    scales.push_back(static_cast<double>(bf16 ? BF16ToF32(value) : F16ToF32(value)));
  }
  return status;
}

// Zero points as signed numbers [rows, G]; they are packed down the rows, eight per word.
Status ReadSignedZeroPoints(const Checkpoint& source, const StoredTensor& tensor, uint64_t n0,
                            uint64_t rows, std::vector<int>& zeros) {
  zeros.clear();
  if (tensor.dtype == DType::kI8) {
    std::vector<int8_t> values;
    Status status = ReadRows(source, tensor, n0, rows, values);
    zeros.assign(values.begin(), values.end());
    return status;
  }
  const uint64_t first_word = n0 / kCodesPerWord;
  const uint64_t last_word = (n0 + rows - 1) / kCodesPerWord;
  std::vector<uint32_t> words;
  Status status = ReadRows(source, tensor, first_word, last_word - first_word + 1, words);
  if (!status.ok()) return status;
  const uint64_t columns = tensor.shape[1];
  for (uint64_t n = n0; n < n0 + rows; ++n) {
    for (uint64_t g = 0; g < columns; ++g) {
      const uint32_t word = words[(n / kCodesPerWord - first_word) * columns + g];
      zeros.push_back(static_cast<int>(word >> (4 * (n % kCodesPerWord)) & 15U) - 8);
    }
  }
  return {};
}

}  // namespace

Status DecodeCompressedTensors(const Checkpoint& source, const SecondRows& wanted,
                               DecodedRows& out) {
  const Result<const StoredTensor*> packed = FindTensor(source, wanted.module + ".weight_packed");
  if (!packed.ok()) return packed.status();
  const Result<const StoredTensor*> scale = FindTensor(source, wanted.module + ".weight_scale");
  if (!scale.ok()) return scale.status();
  std::vector<uint32_t> words;
  Status status = ReadRows(source, **packed, wanted.n0, wanted.rows, words);
  if (status.ok()) status = ReadScales(source, **scale, wanted.n0, wanted.rows, out.scales);
  if (!status.ok()) return status;
  out.groups = (*scale)->shape[1];

  std::vector<int> zeros(out.scales.size(), 0);
  if (const StoredTensor* tensor = source.Find(wanted.module + ".weight_zero_point")) {
    status = ReadSignedZeroPoints(source, *tensor, wanted.n0, wanted.rows, zeros);
    if (!status.ok()) return status;
  }
  const uint64_t words_per_row = (*packed)->shape[1];
  if (out.groups == 0 || wanted.k % out.groups != 0 || wanted.k == 0 ||
      words_per_row < CeilDiv(wanted.k, kCodesPerWord) ||
      zeros.size() != wanted.rows * out.groups) {
    return Malformed(source.Where(**packed), "shapes of codes, scales and zero points disagree");
  }
  const uint64_t group_size = wanted.k / out.groups;
  out.steps.resize(wanted.rows * wanted.k);
  for (uint64_t row = 0; row < wanted.rows; ++row) {
    for (uint64_t i = 0; i < wanted.k; ++i) {
      const uint32_t word = words[row * words_per_row + i / kCodesPerWord];
      const int code = static_cast<int>(word >> (4 * (i % kCodesPerWord)) & 15U) - 8;
      const int zero = zeros[row * out.groups + i / group_size];
      out.steps[row * wanted.k + i] = static_cast<int16_t>(code - zero);
    }
  }
  return {};
}

Result<SecondDecoder> SecondDecoder::Make(const Checkpoint& source, const std::string& format) {
  struct Row {
    std::string_view format;
    DecodeFn decode;
  };
  static constexpr std::array<Row, 4> kDecoders = {{{"compressed-tensors", DecodeCompressedTensors},
                                                    {"awq", DecodeAwq},
                                                    {"gptq", DecodeGptq},
                                                    {"auto-round", DecodeAutoRound}}};
  for (const Row& row : kDecoders) {
    if (row.format == format) return SecondDecoder(source, row.decode);
  }
  return Unsupported(source.path().string(), "no second decoder for this format").Found(format);
}

Status SecondDecoder::Decode(const std::string& module, uint64_t k, uint64_t n0, uint64_t rows,
                             DecodedRows& out) const {
  return decode_(*source_, {.module = module, .k = k, .n0 = n0, .rows = rows}, out);
}

}  // namespace prepack
