#include "prepack/model/dequantized_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "prepack/base/float_convert.h"
#include "prepack/base/status.h"
#include "prepack/base/thread_kept.h"

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
      case CodeType::kF4E2M1:
        values[bits] = F4E2M1ToF32(static_cast<uint8_t>(bits & 15U));
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

// Compilers make vectors of these two loops, as they cannot of look-ups.
void DequantizeNibbles(const std::byte* row, const GroupRun& run, float* out) {
  const std::byte* const bytes = row + run.first / 2;
  float* const __restrict weights = out + run.first;
  const uint64_t count = (run.end - run.first) / 2;
  const GroupRun group = run;
  for (uint64_t i = 0; i < count; ++i) {
    const auto byte = std::to_integer<int>(bytes[i]);
    weights[2 * i] = (static_cast<float>(byte & 15) - group.zero_point) * group.scale;
    weights[2 * i + 1] = (static_cast<float>(byte >> 4) - group.zero_point) * group.scale;
  }
}

template <typename Byte>
void DequantizeBytes(const std::byte* row, const GroupRun& run, float* out) {
  for (uint64_t j = run.first; j < run.end; ++j) {
    const auto value = static_cast<float>(static_cast<Byte>(row[j]));
    out[j] = (value - run.zero_point) * run.scale;
  }
}

void DequantizeRun(CodeType code, const std::array<float, 256>& values, const std::byte* row,
                   const GroupRun& run, float* out) {
  if (code == CodeType::kU8) return DequantizeBytes<uint8_t>(row, run, out);
  if (code == CodeType::kS8) return DequantizeBytes<int8_t>(row, run, out);
  if (code == CodeType::kU4 && run.first % 2 == 0 && run.end % 2 == 0) {
    return DequantizeNibbles(row, run, out);
  }
  if (!IsNibble(code)) {
    for (uint64_t j = run.first; j < run.end; ++j) {
      out[j] = (values[std::to_integer<uint8_t>(row[j])] - run.zero_point) * run.scale;
    }
    return;
  }
  const float* const numbers = values.data();
  const auto weight = [&](unsigned nibble) {
    return (numbers[nibble] - run.zero_point) * run.scale;
  };
  uint64_t j = run.first;
  if (j % 2 != 0 && j < run.end) {
    out[j] = weight(std::to_integer<unsigned>(row[j / 2]) >> 4);
    ++j;
  }
  for (; j + 1 < run.end; j += 2) {
    const auto byte = std::to_integer<unsigned>(row[j / 2]);
    out[j] = weight(byte & 15U);
    out[j + 1] = weight(byte >> 4);
  }
  if (j < run.end) out[j] = weight(std::to_integer<unsigned>(row[j / 2]) & 15U);
}

}  // namespace

const std::array<float, 256>& CodeValues(CodeType code) {
  static const std::array<std::array<float, 256>, 6> kValues = {
      MakeCodeValues(CodeType::kU4),     MakeCodeValues(CodeType::kU8),
      MakeCodeValues(CodeType::kS8),     MakeCodeValues(CodeType::kF8E4M3),
      MakeCodeValues(CodeType::kF4E2M1), MakeCodeValues(CodeType::kBF16)};
  return kValues[static_cast<size_t>(code)];
}

namespace {

Status WrongBuffer(const QuantizedLinear& linear) {
  return Usage(linear.module(), "the buffer does not fit the panel");
}

// The numbers that `count` weights are made of.
Status ReadPanel(const QuantizedLinear& linear, const PanelRange& range, DequantizeBuffers& buffers,
                 size_t count) {
  if (count != range.rows * range.cols) return WrongBuffer(linear);
  buffers.codes.resize(PanelBytes(linear.scheme().code, range));
  buffers.scales.resize(range.rows * linear.groups());
  buffers.zero_points.resize(buffers.scales.size());
  PREPACK_TRY(linear.ReadCodes(range, buffers.codes));
  PREPACK_TRY(linear.ReadScales(range.n0, range.rows, buffers.scales));
  return linear.ReadZeroPoints(range.n0, range.rows, buffers.zero_points);
}

Status ReadFloatPanel(const QuantizedLinear& linear, const PanelRange& range,
                      DequantizeBuffers& buffers, std::span<float> out) {
  if (out.size() != range.rows * range.cols) return WrongBuffer(linear);
  const uint64_t k = linear.k();
  if (range.cols == k) return linear.ReadWeights(range.n0, range.rows, out);
  buffers.row.resize(k);
  for (uint64_t row = 0; row < range.rows; ++row) {
    PREPACK_TRY(linear.ReadWeights(range.n0 + row, 1, buffers.row));
    std::copy_n(buffers.row.begin() + static_cast<std::ptrdiff_t>(range.k0), range.cols,
                out.begin() + static_cast<std::ptrdiff_t>(row * range.cols));
  }
  return {};
}

}  // namespace

Status DequantizePanel(const QuantizedLinear& linear, const PanelRange& range,
                       DequantizeBuffers& buffers, std::span<float> out) {
  if (linear.HasFloats()) return ReadFloatPanel(linear, range, buffers, out);
  PREPACK_TRY(ReadPanel(linear, range, buffers, out.size()));
  const uint64_t groups = linear.groups();
  const uint64_t group_size = linear.scheme().group_size;
  const CodeType code = linear.scheme().code;
  const std::array<float, 256>& values = CodeValues(code);
  ForPanelRows(buffers.codes, range.rows, [&](uint64_t row, std::span<const std::byte> codes) {
    float* weights = out.data() + row * range.cols;
    for (uint64_t first = 0; first < range.cols;) {
      const uint64_t g = (range.k0 + first) / group_size;
      const uint64_t end = std::min(range.cols, (g + 1) * group_size - range.k0);
      DequantizeRun(code, values, codes.data(),
                    {.first = first,
                     .end = end,
                     .zero_point = static_cast<float>(buffers.zero_points[row * groups + g]),
                     .scale = buffers.scales[row * groups + g]},
                    weights);
      first = end;
    }
  });
  return {};
}

namespace {

void DequantizeScattered(CodeType code, const std::byte* row, const DequantizeGroup* groups,
                         std::span<const uint32_t> group_of, float* out) {
  const float* const values = CodeValues(code).data();
  const uint32_t* const numbers = group_of.data();
  const size_t count = group_of.size();
  const auto scaled = [=](unsigned bits, size_t i) {
    const DequantizeGroup& group = groups[numbers[i]];
    return (values[bits] - group.zero_point) * group.scale;
  };
  if (!IsNibble(code)) {
    for (size_t i = 0; i < count; ++i) out[i] = scaled(std::to_integer<unsigned>(row[i]), i);
    return;
  }
  for (size_t i = 0; i + 1 < count; i += 2) {
    const auto byte = std::to_integer<unsigned>(row[i / 2]);
    out[i] = scaled(byte & 15U, i);
    out[i + 1] = scaled(byte >> 4, i + 1);
  }
  if (count % 2 != 0) {
    out[count - 1] = scaled(std::to_integer<unsigned>(row[count / 2]) & 15U, count - 1);
  }
}

// Finds the groups of the input channels of a panel, if they are not those of the last one.
Status FindGroups(const QuantizedLinear& linear, const PanelRange& range,
                  DequantizeBuffers& buffers) {
  PREPACK_TRY_ASSIGN(SharedOrder order, linear.KOrder());
  if (buffers.order == order && buffers.first == range.k0 &&
      buffers.group_of.size() == range.cols) {
    return {};
  }
  buffers.first = range.k0;
  buffers.group_of.resize(range.cols);
  for (uint64_t j = 0; j < order->size(); ++j) {
    const uint64_t input = (*order)[j];
    if (input < range.k0 || input - range.k0 >= range.cols) continue;
    buffers.group_of[input - range.k0] = static_cast<uint32_t>(j / linear.scheme().group_size);
  }
  buffers.order = std::move(order);
  return {};
}

// `in_order`: the module in the model's order.
Status DequantizeInOrder(const QuantizedLinear& linear, const QuantizedLinear& in_order,
                         const PanelRange& range, DequantizeBuffers& buffers,
                         std::span<float> out) {
  PREPACK_TRY(ReadPanel(in_order, range, buffers, out.size()));
  PREPACK_TRY(FindGroups(linear, range, buffers));
  std::vector<DequantizeGroup>& groups = buffers.groups;
  groups.resize(linear.groups());
  ForPanelRows(buffers.codes, range.rows, [&](uint64_t row, std::span<const std::byte> codes) {
    for (size_t g = 0; g < groups.size(); ++g) {
      const size_t at = row * groups.size() + g;
      groups[g] = {.zero_point = static_cast<float>(buffers.zero_points[at]),
                   .scale = buffers.scales[at]};
    }
    DequantizeScattered(linear.scheme().code, codes.data(), groups.data(), buffers.group_of,
                        out.data() + row * range.cols);
  });
  return {};
}

}  // namespace

// The codes are read as they are stored, and every input channel looks up its group: that is faster
// than to bring codes into the order of groups, and weights back.
Status DequantizeInputs(const QuantizedLinear& linear, const PanelRange& range,
                        DequantizeBuffers& buffers, std::span<float> out) {
  if (!linear.reordered()) return DequantizePanel(linear, range, buffers, out);
  return DequantizeInOrder(linear, *linear.InModelOrder(), range, buffers, out);
}

Status DequantizeRows(const QuantizedLinear& linear, uint64_t n0, uint64_t rows,
                      DequantizeBuffers& buffers, std::span<float> out) {
  return DequantizeInputs(linear, {.n0 = n0, .rows = rows, .k0 = 0, .cols = linear.k()}, buffers,
                          out);
}

namespace {

class DequantizedLinear final : public QuantizedLinear {
 public:
  explicit DequantizedLinear(const QuantizedLinear& source)
      : source_(source), in_order_(source.reordered() ? source.InModelOrder() : nullptr) {
    module_.Borrow(source.module());
    scheme_ = DequantizedScheme(source.n(), source.k());
    n_ = source.n();
    k_ = source.k();
    stored_scale_dtype_ = source.stored_scale_dtype();
    source_tensors_ = source.source_tensors();
    source_bytes_ = source.source_bytes();
  }

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override;
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override {
    return Fill(n0, rows, 1.0F, out);
  }
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override {
    return Fill(n0, rows, uint8_t{0}, out);
  }
  Result<uint64_t> CountStrayBits() const override { return source_.CountStrayBits(); }

 private:
  template <typename T>
  Status Fill(uint64_t n0, uint64_t rows, T value, std::span<T> out) const {
    Status status = CheckRows(n0, rows, out.size());
    if (status.ok()) std::ranges::fill(out, value);
    return status;
  }

  const QuantizedLinear& source_;
  std::unique_ptr<QuantizedLinear> in_order_;  // null: as the source has it
};

Status DequantizedLinear::ReadCodes(const PanelRange& range, std::span<std::byte> out) const {
  PREPACK_TRY(CheckPanel(range, out.size()));
  // Whole rows, because act-order scatters the columns. Buffers of a thread are kept: panels come
  // by the million.
  struct Kept {
    DequantizeBuffers buffers;
    std::vector<float> weights;
  };
  auto& [buffers, weights] = KeptByThread<Kept, Kept>();
  weights.resize(range.rows * k_);
  const PanelRange rows{.n0 = range.n0, .rows = range.rows, .k0 = 0, .cols = k_};
  PREPACK_TRY(in_order_ ? DequantizeInOrder(source_, *in_order_, rows, buffers, weights)
                        : DequantizePanel(source_, rows, buffers, weights));
  std::byte* to = out.data();
  for (uint64_t row = 0; row < range.rows; ++row) {
    for (uint64_t col = 0; col < range.cols; ++col) {
      const float weight = weights[row * k_ + range.k0 + col];
      const uint16_t bits = F32ToBF16(weight);
      if (!std::isfinite(BF16ToF32(bits))) {
        return Unsupported(fmt::format("module {}: weight [{}, {}]", module(), range.n0 + row,
                                       range.k0 + col),
                           "too large for BF16: it would become infinite")
            .Found(fmt::format("{}", weight));
      }
      std::memcpy(to, &bits, sizeof bits);
      to += sizeof bits;
    }
  }
  return {};
}

}  // namespace

Scheme DequantizedScheme(uint64_t n, uint64_t k) {
  return {.code = CodeType::kBF16,
          .bits = 16,
          .granularity = Granularity::kTensor,
          .group_size = k,
          .scale_rows = n,
          .symmetric = true,
          .activations = {}};
}

std::unique_ptr<QuantizedLinear> Dequantized(const QuantizedLinear& source) {
  return std::make_unique<DequantizedLinear>(source);
}

}  // namespace prepack
