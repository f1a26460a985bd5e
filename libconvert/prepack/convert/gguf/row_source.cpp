#include "prepack/convert/gguf/row_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "prepack/base/float_convert.h"
#include "prepack/convert/gguf/quantize.h"
#include "prepack/convert/gguf/types.h"
#include "prepack/gguf/blocks.h"
#include "prepack/model/panel.h"

namespace prepack::gguf {
namespace {

// Stores 16-bit floats, and counts those that are not exact.
template <uint16_t (*kNarrow)(float), float (*kWiden)(uint16_t)>
uint64_t StoreNarrow(std::span<const float> weights, std::byte* out) {
  uint64_t wrong = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const uint16_t bits = kNarrow(weights[i]);
    wrong += kWiden(bits) != weights[i] ? 1U : 0U;
    std::memcpy(out + 2 * i, &bits, sizeof bits);
  }
  return wrong;
}

// Stores rows of floats as a type of floats.
void StoreFloats(GgmlType type, std::span<const float> weights, std::span<std::byte> out,
                 std::span<Rounded> rounded) {
  if (type == GgmlType::kF32) {
    std::memcpy(out.data(), weights.data(), weights.size_bytes());
    return;
  }
  const size_t columns = weights.size() / rounded.size();
  for (size_t row = 0; row < rounded.size(); ++row) {
    const std::span<const float> from = weights.subspan(row * columns, columns);
    std::byte* to = &out[row * columns * 2];
    rounded[row].weights += type == GgmlType::kF16 ? StoreNarrow<F32ToF16, F16ToF32>(from, to)
                                                   : StoreNarrow<F32ToBF16, BF16ToF32>(from, to);
  }
}

std::string WhereOf(const QuantizedLinear& linear, uint64_t channel) {
  return fmt::format("module {}: output channel {}", linear.module(), channel);
}

// A module whose codes the type holds.
class PackedRows final : public RowSource {
 public:
  PackedRows(const Checkpoint& checkpoint, const QuantizedLinear& linear, GgmlType type)
      : checkpoint_(checkpoint),
        linear_(linear),
        packer_(type, linear.scheme(), linear.k(),
                linear.global_scale().value_or(GlobalScale{.value = 1})) {}

  Status Read(uint64_t n0, std::span<std::byte> out, RowBuffers& buffers,
              std::span<Rounded> rounded) const override {
    const uint64_t rows = rounded.size();
    const uint64_t groups = linear_.groups();
    buffers.scales.resize(rows * groups);
    buffers.zero_points.resize(rows * groups);
    PREPACK_TRY(linear_.ReadScales(n0, rows, buffers.scales));
    PREPACK_TRY(linear_.ReadZeroPoints(n0, rows, buffers.zero_points));
    const PanelRange range{.n0 = n0, .rows = rows, .k0 = 0, .cols = linear_.k()};
    const uint64_t bytes = PanelBytes(linear_.scheme().code, range);
    if (const auto place = linear_.FindCodes(range)) {
      const StoredTensor* tensor = checkpoint_.Find(place->tensor);
      if (tensor != nullptr) {
        Status status;
        PREPACK_TRY(checkpoint_.Visit(*tensor, place->offset, bytes, [&](const std::byte* codes) {
          status = Pack({codes, static_cast<size_t>(bytes)}, n0, out, buffers, rounded);
        }));
        return status;
      }
    }
    buffers.codes.resize(bytes);
    PREPACK_TRY(linear_.ReadCodes(range, buffers.codes));
    return Pack(buffers.codes, n0, out, buffers, rounded);
  }

 private:
  Status Pack(std::span<const std::byte> codes, uint64_t n0, std::span<std::byte> out,
              const RowBuffers& buffers, std::span<Rounded> rounded) const {
    const uint64_t rows = rounded.size();
    const uint64_t groups = linear_.groups();
    const uint64_t code_bytes = codes.size() / rows;
    for (uint64_t row = 0; row < rows; ++row) {
      const CodeRow code_row{
          .codes = codes.subspan(row * code_bytes, code_bytes),
          .scales = std::span(buffers.scales).subspan(row * groups, groups),
          .zero_points = std::span(buffers.zero_points).subspan(row * groups, groups)};
      Status status = packer_.Pack(code_row, &out[row * packer_.row_bytes()], rounded[row]);
      if (!status.ok()) return std::move(status).In(WhereOf(linear_, n0 + row));
    }
    return {};
  }

  const Checkpoint& checkpoint_;
  const QuantizedLinear& linear_;
  RowPacker packer_;
};

// A module as its weights: floats, or quantized.
class FloatRows final : public RowSource {
 public:
  FloatRows(const QuantizedLinear& linear, GgmlType type) : linear_(linear), type_(type) {}

  Status Read(uint64_t n0, std::span<std::byte> out, RowBuffers& buffers,
              std::span<Rounded> rounded) const override {
    const uint64_t rows = rounded.size();
    buffers.weights.resize(rows * linear_.k());
    PREPACK_TRY(DequantizeRows(linear_, n0, rows, buffers.dequantize, buffers.weights));
    if (type_ == GgmlType::kQ8_0) return Quantize(n0, buffers.weights, out, rounded);
    StoreFloats(type_, buffers.weights, out, rounded);
    return {};
  }

 private:
  Status Quantize(uint64_t n0, std::span<const float> weights, std::span<std::byte> out,
                  std::span<Rounded> rounded) const {
    const uint64_t k = linear_.k();
    const size_t row_bytes = out.size() / rounded.size();
    for (size_t row = 0; row < rounded.size(); ++row) {
      Status status =
          QuantizeQ8_0(weights.subspan(row * k, k), &out[row * row_bytes], rounded[row]);
      if (!status.ok()) return std::move(status).In(WhereOf(linear_, n0 + row));
    }
    return {};
  }

  const QuantizedLinear& linear_;
  GgmlType type_;
};

// A tensor that is not quantized.
class PlainRows final : public RowSource {
 public:
  PlainRows(const Checkpoint& checkpoint, const Source& source, GgmlType type)
      : checkpoint_(checkpoint),
        tensor_(*source.plain),
        columns_(source.columns()),
        stored_(FloatTypeOf(tensor_.dtype)),
        type_(type) {}

  Status Read(uint64_t n0, std::span<std::byte> out, RowBuffers& buffers,
              std::span<Rounded> rounded) const override {
    const uint64_t rows = rounded.size();
    const uint64_t row_bytes = columns_ * InfoOf(stored_).bytes;
    if (stored_ == type_) return checkpoint_.Read(tensor_, n0 * row_bytes, out);
    buffers.codes.resize(rows * row_bytes);
    buffers.weights.resize(rows * columns_);
    PREPACK_TRY(checkpoint_.Read(tensor_, n0 * row_bytes, buffers.codes));
    Dequantize(stored_, buffers.codes, buffers.weights);
    StoreFloats(type_, buffers.weights, out, rounded);
    return {};
  }

 private:
  const Checkpoint& checkpoint_;
  const StoredTensor& tensor_;
  uint64_t columns_;
  GgmlType stored_;
  GgmlType type_;
};

// The experts of a stack, one after another.
class StackRows final : public RowSource {
 public:
  StackRows(std::vector<std::unique_ptr<RowSource>> experts, uint64_t rows_each)
      : experts_(std::move(experts)), rows_each_(rows_each) {}

  Status Read(uint64_t n0, std::span<std::byte> out, RowBuffers& buffers,
              std::span<Rounded> rounded) const override {
    const uint64_t rows = rounded.size();
    const uint64_t row_bytes = out.size() / rows;
    for (uint64_t done = 0; done < rows;) {
      const uint64_t row = (n0 + done) % rows_each_;
      const uint64_t count = std::min(rows - done, rows_each_ - row);
      PREPACK_TRY(experts_[(n0 + done) / rows_each_]->Read(
          row, out.subspan(done * row_bytes, count * row_bytes), buffers,
          rounded.subspan(done, count)));
      done += count;
    }
    return {};
  }

 private:
  std::vector<std::unique_ptr<RowSource>> experts_;
  uint64_t rows_each_;
};

}  // namespace

std::unique_ptr<RowSource> MakeRowSource(const Checkpoint& checkpoint, const Source& source,
                                         GgmlType type) {
  if (source.plain != nullptr) return std::make_unique<PlainRows>(checkpoint, source, type);
  std::vector<std::unique_ptr<RowSource>> rows;
  for (const QuantizedLinear* linear : source.modules) {
    if (HoldsModule(type, *linear)) {
      rows.push_back(std::make_unique<PackedRows>(checkpoint, *linear, type));
    } else {
      rows.push_back(std::make_unique<FloatRows>(*linear, type));
    }
  }
  if (rows.size() == 1) return std::move(rows.front());
  return std::make_unique<StackRows>(std::move(rows), source.rows_of_module());
}

}  // namespace prepack::gguf
