#include "canonical/dequantize.h"

#include <algorithm>

#include "base/float_convert.h"

namespace prepack {

namespace {

std::array<float, 256> MakeCodeValues(CodeType code) {
  std::array<float, 256> values{};
  for (unsigned bits = 0; bits < values.size(); ++bits) {
    switch (code) {
      case CodeType::kU4:
      case CodeType::kU8:
        values[bits] = static_cast<float>(bits);
        break;
      case CodeType::kS8:
        values[bits] = static_cast<float>(static_cast<int8_t>(bits));
        break;
      case CodeType::kF8E4M3:
        values[bits] = F8E4M3ToF32(static_cast<uint8_t>(bits));
        break;
      case CodeType::kBF16:  // has no codes
        break;
    }
  }
  return values;
}

// Weights of one group of one row: `codes` begins at the group's first code.
struct GroupRun {
  uint64_t first = 0;  // column of the panel
  uint64_t end = 0;
  float zero_point = 0;
  float scale = 0;
};

void DequantizeRun(CodeType code, const std::array<float, 256>& values, const std::byte* row,
                   const GroupRun& run, float* out) {
  if (!IsNibble(code)) {
    for (uint64_t j = run.first; j < run.end; ++j) {
      out[j] = (values[std::to_integer<uint8_t>(row[j])] - run.zero_point) * run.scale;
    }
    return;
  }
  for (uint64_t j = run.first; j < run.end; ++j) {
    const auto byte = std::to_integer<unsigned>(row[j / 2]);
    const unsigned nibble = j % 2 == 0 ? byte & 15U : byte >> 4;
    out[j] = (static_cast<float>(nibble) - run.zero_point) * run.scale;
  }
}

}  // namespace

const std::array<float, 256>& CodeValues(CodeType code) {
  static const std::array<std::array<float, 256>, 5> kValues = {
      MakeCodeValues(CodeType::kU4), MakeCodeValues(CodeType::kU8), MakeCodeValues(CodeType::kS8),
      MakeCodeValues(CodeType::kF8E4M3), MakeCodeValues(CodeType::kBF16)};
  return kValues[static_cast<size_t>(code)];
}

Status DequantizeRows(const QuantizedLinear& linear, uint64_t n0, uint64_t rows,
                      DequantizeBuffers& buffers, std::span<float> out) {
  const uint64_t k = linear.k();
  const uint64_t groups = linear.groups();
  const CodeType code = linear.scheme().code;
  if (out.size() != rows * k) return Usage(linear.module(), "the buffer does not fit the rows");
  const PanelRange range{.n0 = n0, .rows = rows, .k0 = 0, .cols = k};
  buffers.codes.resize(PanelBytes(code, range));
  buffers.scales.resize(rows * groups);
  buffers.zero_points.resize(rows * groups);
  Status status = linear.ReadCodes(range, buffers.codes);
  if (status.ok()) status = linear.ReadScales(n0, rows, buffers.scales);
  if (status.ok()) status = linear.ReadZeroPoints(n0, rows, buffers.zero_points);
  if (!status.ok()) return status;

  const std::array<float, 256>& values = CodeValues(code);
  const Result<SharedOrder> read = linear.KOrder();
  if (!read.ok()) return read.status();
  const InputOrder& order = **read;
  std::vector<float> ordered(order.empty() ? 0 : k);
  for (uint64_t row = 0; row < rows; ++row) {
    const std::byte* codes = buffers.codes.data() + row * PanelRowBytes(code, k);
    float* weights = out.data() + row * k;
    float* target = order.empty() ? weights : ordered.data();
    for (uint64_t g = 0; g < groups; ++g) {
      const uint64_t first = g * linear.scheme().group_size;
      DequantizeRun(code, values, codes,
                    {.first = first,
                     .end = std::min(k, first + linear.scheme().group_size),
                     .zero_point = static_cast<float>(buffers.zero_points[row * groups + g]),
                     .scale = buffers.scales[row * groups + g]},
                    target);
    }
    for (uint64_t j = 0; j < order.size(); ++j) weights[order[j]] = ordered[j];
  }
  return {};
}

}  // namespace prepack
