#include "prepack/convert/gguf/block_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/memory.h"
#include "prepack/gguf/blocks.h"
#include "prepack/model/dequantized_linear.h"

namespace prepack::gguf {
namespace {

using enum GgmlType;

// What is added to a code of ggml to make it one of the canonical layout.
int OffsetOf(GgmlType type) {
  switch (type) {
    case kQ4_0:
      return 8;
    case kQ5_0:
      return 16;
    case kQ6_K:
      return 32;
    default:
      return 0;
  }
}

// The input channels that have a scale of their own.
uint64_t GroupOf(GgmlType type) {
  return type == kQ6_K || type == kNVFP4 ? 16 : InfoOf(type).block;
}

Scheme SchemeOf(GgmlType type, uint64_t k, uint64_t group) {
  const uint64_t own = GroupOf(type);
  Scheme scheme{.code = CodeType::kU4,
                .bits = 4,
                .granularity = Granularity::kGroup,
                .group_size = std::max(group, own),
                .symmetric = !HasF16Minimum(type)};
  if (group == k && group > own) scheme.granularity = Granularity::kChannel;
  if (type == kQ8_0) {
    scheme.code = CodeType::kS8;
    scheme.bits = 8;
  } else if (type == kMXFP4 || type == kNVFP4) {
    scheme.code = CodeType::kF4E2M1;
  } else if (type != kQ4_0 && type != kQ4_1) {
    scheme.code = CodeType::kU8;
    scheme.bits = type == kQ6_K ? 6 : 5;
  }
  return scheme;
}

// The zero point that a minimum means; nothing if it means none.
std::optional<uint8_t> ZeroPoint(GgmlType type, const Block& block) {
  const float scale = block.scales[0];
  const int most = type == kQ4_1 ? 15 : 31;
  if (scale == 0) return block.minima[0] == 0 ? std::optional<uint8_t>(0) : std::nullopt;
  const float zero = std::round(-block.minima[0] / scale);
  if (!(zero >= 0 && zero <= static_cast<float>(most))) return std::nullopt;
  if (F16ToF32(F32ToF16(-zero * scale)) != block.minima[0]) return std::nullopt;
  return static_cast<uint8_t>(zero);
}

// The low halves of 8 bytes as the first 4 of `out`, two in each.
void JoinHalves(uint64_t bytes, std::byte* out) {
  uint64_t halves = bytes & 0x0F0F0F0F0F0F0F0FU;
  halves = (halves | halves >> 4) & 0x00FF00FF00FF00FFU;
  halves = (halves | halves >> 8) & 0x0000FFFF0000FFFFU;
  const auto joined = static_cast<uint32_t>(halves | halves >> 16);
  std::memcpy(out, &joined, sizeof joined);
}

// `half` bytes with code j in the low half of byte j, and code j + half in the high one.
void TakeNibbles(const std::byte* bytes, uint32_t half, std::byte* out) {
  static_assert(std::endian::native == std::endian::little);
  for (uint32_t i = 0; i < half; i += 8) {
    uint64_t eight = 0;
    std::memcpy(&eight, bytes + i, sizeof eight);
    JoinHalves(eight, out + i / 2);
    JoinHalves(eight >> 4, out + (half + i) / 2);
  }
}

// The codes of a block as a panel has them.
void TakeCodes(GgmlType type, const std::byte* block, std::byte* out) {
  switch (type) {
    case kQ4_0:
      return TakeNibbles(block + 2, 16, out);
    case kQ4_1:
      return TakeNibbles(block + 4, 16, out);
    case kMXFP4:
      return TakeNibbles(block + 1, 16, out);
    case kNVFP4:
      for (size_t i = 0; i < 4; ++i) TakeNibbles(block + 4 + 8 * i, 8, out + 8 * i);
      return;
    case kQ8_0:
      std::memcpy(out, block + 2, 32);
      return;
    default: {
      const Block decoded = DecodeBlock(type, block);
      const int offset = OffsetOf(type);
      for (uint32_t i = 0; i < InfoOf(type).block; ++i) {
        out[i] = static_cast<std::byte>(decoded.codes[i] + offset);
      }
    }
  }
}

// What both kinds of modules share: rows of tensors of the file.
class RowsOfFile : public StoredLinear {
 protected:
  RowsOfFile(const Checkpoint& checkpoint, BlockModule module)
      : StoredLinear(checkpoint), rows_(std::move(module)) {
    module_.Borrow(rows_.name);
    n_ = rows_.n;
    k_ = rows_.whole->columns;
    const StoredTensor* bias = checkpoint.Find(rows_.whole->name + "_bias");
    if (rows_.is_expert && bias != nullptr) {
      SetRare({.stacked_bias = StackedBias{.tensor = bias->name,
                                           .row = rows_.first / n_,
                                           .rows = rows_.whole->rows / n_,
                                           .channels = n_}});
    }
    for (const RestoredPiece& piece : rows_.whole->pieces) {
      const StoredTensor* tensor = checkpoint.Find(piece.tensor->name);
      tensors_.push_back(tensor);
      if (std::ranges::count(source_tensors_, tensor->name) == 0)
        source_tensors_.push_back(tensor->name);
    }
    row_bytes_ = InfoOf(type()).bytes * (k_ / InfoOf(type()).block);
    source_bytes_ = n_ * row_bytes_;
  }

  GgmlType type() const { return rows_.whole->pieces.front().tensor->type; }
  uint64_t blocks() const { return k_ / InfoOf(type()).block; }

  struct Place {
    const StoredTensor* tensor = nullptr;
    uint64_t row = 0;
  };

  // Where row n of the module is.
  Result<Place> Find(uint64_t n) const {
    const std::vector<RestoredPiece>& pieces = rows_.whole->pieces;
    const std::optional<Restored::Place> found = rows_.whole->Find(rows_.first + n);
    if (found)
      return Place{tensors_[static_cast<size_t>(found->piece - pieces.data())], found->row};
    return Malformed(fmt::format("module {}", module()), "the file does not hold one of its rows")
        .Found(fmt::format("output channel {}", n))
        .Hint("The manifest beside the file does not describe it: convert the model again");
  }

  // Calls work(row, bytes) for rows [n0, n0 + rows), row counted from n0, with the bytes of each.
  Status ForRows(uint64_t n0, uint64_t rows,
                 FunctionRef<void(uint64_t row, const std::byte* bytes)> work) const {
    constexpr uint64_t kFurthest = 4;  // times as many rows may lie between the first and the last
    Scratch<Place> places(rows);
    for (uint64_t row = 0; row < rows; ++row) {
      PREPACK_TRY_ASSIGN(places.data()[row], Find(n0 + row));
    }
    const std::span all(places.data(), rows);
    for (uint64_t begin = 0; begin < rows;) {
      uint64_t low = all[begin].row;
      uint64_t high = low;
      uint64_t end = begin + 1;
      for (; end < rows && all[end].tensor == all[begin].tensor; ++end) {
        const uint64_t lowest = std::min(low, all[end].row);
        const uint64_t highest = std::max(high, all[end].row);
        if (highest - lowest > kFurthest * (rows + kFurthest)) break;
        low = lowest;
        high = highest;
      }
      PREPACK_TRY(checkpoint().Visit(*all[begin].tensor, low * row_bytes_,
                                     (high - low + 1) * row_bytes_, [&](const std::byte* bytes) {
                                       for (uint64_t row = begin; row < end; ++row) {
                                         work(row, bytes + (all[row].row - low) * row_bytes_);
                                       }
                                     }));
      begin = end;
    }
    return {};
  }

  uint64_t row_bytes() const { return row_bytes_; }
  const std::vector<const StoredTensor*>& tensors() const { return tensors_; }
  const BlockModule& rows_of() const { return rows_; }

 private:
  BlockModule rows_;
  std::vector<const StoredTensor*> tensors_;  // of the pieces
  uint64_t row_bytes_ = 0;
};

class BlockLinear final : public RowsOfFile {
 public:
  BlockLinear(const Checkpoint& checkpoint, BlockModule module)
      : RowsOfFile(checkpoint, std::move(module)) {
    scheme_ = SchemeOf(type(), k_, rows_of().whole->group);
    stored_scale_dtype_ = DType::kF16;
    if (type() == kQ6_K) stored_scale_dtype_ = DType::kF32;
    // It holds the numbers of both: powers of two, and E4M3.
    if (scheme_->code == CodeType::kF4E2M1) stored_scale_dtype_ = DType::kBF16;
  }

  Status ReadFactor() {
    if (type() != kNVFP4) return {};
    std::optional<float> factor;
    for (const StoredTensor* tensor : tensors()) {
      PREPACK_TRY(ReadFactorOf(*tensor, factor));
    }
    RareNumbers rare = this->rare();
    rare.global_scale = GlobalScale{.value = factor.value_or(1)};
    SetRare(rare);
    return {};
  }

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override;
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override;
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override;
  StoredBits WhereCode(uint64_t n, uint64_t k) const override;
  StoredBits WhereScale(uint64_t n, uint64_t g) const override;
  StoredBits WhereZeroPoint(uint64_t n, uint64_t g) const override;
  PanelRange CodesNear(uint64_t byte) const override;

 private:
  Status ReadFactorOf(const StoredTensor& tensor, std::optional<float>& factor);
  Status Refuse(std::string_view what, uint64_t n, uint64_t block) const;
  // Bit `bit` of the block that holds input channel k.
  BitRun InBlock(uint64_t n, uint64_t k, uint64_t bit, uint32_t bits) const;
  // The scales of a block, of which each has GroupOf(type()) weights.
  uint32_t ScalesOf(const std::byte* block, std::array<float, 16>& scales) const;
};

// The factors belong to equally many rows each.
Status BlockLinear::ReadFactorOf(const StoredTensor& tensor, std::optional<float>& factor) {
  const StoredTensor* factors = checkpoint().Find(FactorsOf(std::string(tensor.name)));
  if (factors == nullptr) return {};
  std::vector<float> values(factors->bytes / sizeof(float));
  PREPACK_TRY(ReadFloats(checkpoint(), *factors, 0, values));
  const uint64_t rows = tensor.bytes / row_bytes();
  if (values.empty() || rows % values.size() != 0) {
    return Malformed(checkpoint().Where(*factors), "not the factors of its tensor");
  }
  source_tensors_.push_back(factors->name);
  for (uint64_t n = 0; n < n_; ++n) {
    PREPACK_TRY_ASSIGN(const Place place, Find(n));
    if (place.tensor != &tensor) continue;
    const float value = values[place.row / (rows / values.size())];
    if (!(value > 0) || !std::isfinite(value)) {
      return Malformed(checkpoint().Where(*factors), "a factor is no positive number")
          .Found(fmt::format("{}", value));
    }
    if (factor.value_or(value) != value) {
      return Unsupported(fmt::format("module {}", module()), "its rows have different factors");
    }
    factor = value;
  }
  return {};
}

Status BlockLinear::Refuse(std::string_view what, uint64_t n, uint64_t block) const {
  return Malformed(fmt::format("module {}: output channel {}", module(), n), what)
      .Found(fmt::format("block {} of {}", block, InfoOf(type()).name))
      .Hint("`prepack check` judges the file");
}

Status BlockLinear::ReadCodes(const PanelRange& range, std::span<std::byte> out) const {
  PREPACK_TRY(CheckPanel(range, out.size()));
  const uint64_t each = InfoOf(type()).block;
  const uint64_t block_codes = PanelRowBytes(scheme_->code, each);
  const uint64_t first = range.k0 / each;
  const uint64_t last = range.cols == 0 ? first : (range.k0 + range.cols - 1) / each + 1;
  const bool whole = range.k0 % each == 0 && range.cols % each == 0;
  const uint64_t row_codes = PanelRowBytes(scheme_->code, range.cols);
  const uint64_t before = PanelRowBytes(scheme_->code, range.k0 - first * each);
  const bool odd = IsNibble(scheme_->code) && range.cols % 2 != 0;
  Scratch<std::byte> wide(whole ? 0 : (last - first) * block_codes);
  return ForRows(range.n0, range.rows, [&](uint64_t row, const std::byte* bytes) {
    std::byte* to = whole ? &out[row * row_codes] : wide.data();
    for (uint64_t block = first; block < last; ++block) {
      TakeCodes(type(), bytes + block * InfoOf(type()).bytes, to + (block - first) * block_codes);
    }
    if (whole) return;
    std::memcpy(&out[row * row_codes], wide.data() + before, row_codes);
    if (odd) out[(row + 1) * row_codes - 1] &= std::byte{0x0F};
  });
}

uint32_t BlockLinear::ScalesOf(const std::byte* block, std::array<float, 16>& scales) const {
  switch (type()) {
    case kMXFP4:
      scales[0] = F8E8M0ToF32(std::to_integer<uint8_t>(block[0]));
      return 1;
    case kNVFP4:
      for (size_t i = 0; i < 4; ++i) {
        // ggml does not look at the sign.
        scales[i] = global_scale()->Apply(F8E4M3ToF32(std::to_integer<uint8_t>(block[i]) & 0x7FU));
      }
      return 4;
    case kQ6_K:
      scales = DecodeBlock(type(), block).scales;
      return 16;
    default: {
      uint16_t bits = 0;
      std::memcpy(&bits, block, sizeof bits);
      scales[0] = F16ToF32(bits);
      return 1;
    }
  }
}

Status BlockLinear::ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const {
  PREPACK_TRY(CheckRows(n0, rows, out.size()));
  const uint64_t each = scheme_->group_size / GroupOf(type());  // scales of the file in a group
  Status status;
  PREPACK_TRY(ForRows(n0, rows, [&](uint64_t row, const std::byte* bytes) {
    std::array<float, 16> scales{};
    uint64_t number = 0;
    for (uint64_t block = 0; block < blocks() && status.ok(); ++block) {
      const uint32_t count = ScalesOf(bytes + block * InfoOf(type()).bytes, scales);
      for (uint32_t i = 0; i < count; ++i, ++number) {
        float& scale = out[row * groups() + number / each];
        if (number % each == 0) scale = scales[i];
        if (scale != scales[i]) {
          status = Refuse("its groups should have one scale each", n0 + row, block);
        }
      }
    }
  }));
  PREPACK_TRY(std::move(status));
  return CheckScales(*tensors().front(), n0, rows, out);
}

Status BlockLinear::ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const {
  PREPACK_TRY(CheckRows(n0, rows, out.size()));
  if (scheme_->symmetric) {
    std::ranges::fill(out, ZeroOfSymmetric(scheme()));
    return {};
  }
  const uint64_t each = scheme_->group_size / InfoOf(type()).block;
  Status status;
  PREPACK_TRY(ForRows(n0, rows, [&](uint64_t row, const std::byte* bytes) {
    for (uint64_t block = 0; block < blocks() && status.ok(); ++block) {
      const Block decoded = DecodeBlock(type(), bytes + block * InfoOf(type()).bytes);
      const std::optional<uint8_t> found = ZeroPoint(type(), decoded);
      uint8_t& zero = out[row * groups() + block / each];
      if (found && block % each == 0) zero = *found;
      if (!found || zero != *found) {
        status = Refuse(
            found ? "its groups should have one zero point each" : "a minimum means no zero point",
            n0 + row, block);
      }
    }
  }));
  return status;
}

BitRun BlockLinear::InBlock(uint64_t n, uint64_t k, uint64_t bit, uint32_t bits) const {
  const Result<Place> place = Find(n);
  const GgmlTypeInfo& info = InfoOf(type());
  const uint64_t row = place.ok() ? place->row : 0;
  const StoredTensor* tensor = place.ok() ? place->tensor : tensors().front();
  return {.tensor = tensor->name,
          .bit = 8 * (row * row_bytes() + k / info.block * info.bytes) + bit,
          .bits = bits};
}

StoredBits BlockLinear::WhereCode(uint64_t n, uint64_t k) const {
  const uint64_t i = k % InfoOf(type()).block;
  // Of code i of `half` low halves, and as many high ones.
  const auto nibble = [](uint64_t start, uint64_t code, uint64_t half) {
    return 8 * (start + code % half) + code / half * 4;
  };
  switch (type()) {
    case kQ4_0:
      return {InBlock(n, k, nibble(2, i, 16), 4)};
    case kQ4_1:
      return {InBlock(n, k, nibble(4, i, 16), 4)};
    case kMXFP4:
      return {InBlock(n, k, nibble(1, i, 16), 4)};
    case kNVFP4:
      return {InBlock(n, k, nibble(4 + i / 16 * 8, i % 16, 8), 4)};
    case kQ5_0:
      return {InBlock(n, k, nibble(6, i, 16), 4), InBlock(n, k, 16 + i, 1)};
    case kQ5_1:
      return {InBlock(n, k, nibble(8, i, 16), 4), InBlock(n, k, 32 + i, 1)};
    case kQ6_K: {
      const uint64_t half = i / 128;
      const uint64_t low = 8 * (64 * half + i % 64) + i % 128 / 64 * 4;
      const uint64_t high = 8 * (128 + 32 * half + i % 32) + i % 128 / 32 * 2;
      return {InBlock(n, k, low, 4), InBlock(n, k, high, 2)};
    }
    default:
      return {InBlock(n, k, 8 * (2 + i), 8)};
  }
}

// Of Q6_K, the number that scales the scale of the block.
StoredBits BlockLinear::WhereScale(uint64_t n, uint64_t g) const {
  const uint64_t k = g * scheme_->group_size;
  const uint64_t i = k % InfoOf(type()).block / GroupOf(type());
  if (type() == kQ6_K) return {InBlock(n, k, 8 * (192 + i), 8)};
  if (type() == kMXFP4 || type() == kNVFP4) return {InBlock(n, k, 8 * i, 8)};
  return {InBlock(n, k, 0, 16)};
}

StoredBits BlockLinear::WhereZeroPoint(uint64_t n, uint64_t g) const {
  if (scheme_->symmetric) return {};
  return {InBlock(n, g * scheme_->group_size, 16, 16)};
}

// Rows of the file change places in the module, so that all channels of the block may be near.
PanelRange BlockLinear::CodesNear(uint64_t byte) const {
  const GgmlTypeInfo& info = InfoOf(type());
  const uint64_t row = byte / row_bytes();
  const uint64_t k0 = byte % row_bytes() / info.bytes * info.block;
  for (const RestoredPiece& piece : rows_of().whole->pieces) {
    if (piece.tensor->name != tensors().front()->name || row < piece.before ||
        row - piece.before >= piece.piece.rows())
      continue;
    const uint64_t n = piece.piece.Row(row - piece.before);
    if (n < rows_of().first || n - rows_of().first >= n_) return {};
    return {.n0 = n - rows_of().first, .rows = 1, .k0 = k0, .cols = info.block};
  }
  return {};
}

// Weights that no codes and scales say.
class FloatLinear final : public RowsOfFile {
 public:
  FloatLinear(const Checkpoint& checkpoint, BlockModule module)
      : RowsOfFile(checkpoint, std::move(module)) {
    scheme_ = DequantizedScheme(n_, k_);
    stored_scale_dtype_ = DType::kF16;
    bf16_ = Dequantized(*this);
  }

  bool HasFloats() const override { return true; }
  Status ReadWeights(uint64_t n0, uint64_t rows, std::span<float> out) const override {
    PREPACK_TRY(CheckRows(n0, rows, rows * groups()));
    return ForRows(n0, rows, [&](uint64_t row, const std::byte* bytes) {
      Dequantize(type(), {bytes, static_cast<size_t>(row_bytes())}, out.subspan(row * k_, k_));
    });
  }
  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override {
    return bf16_->ReadCodes(range, out);
  }
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override {
    PREPACK_TRY(CheckRows(n0, rows, out.size()));
    std::ranges::fill(out, 1.0F);
    return {};
  }
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override {
    PREPACK_TRY(CheckRows(n0, rows, out.size()));
    std::ranges::fill(out, uint8_t{0});
    return {};
  }
  const SourcePlaces* places() const override { return nullptr; }
  StoredBits WhereCode(uint64_t /*n*/, uint64_t /*k*/) const override { return {}; }
  StoredBits WhereScale(uint64_t /*n*/, uint64_t /*g*/) const override { return {}; }
  StoredBits WhereZeroPoint(uint64_t /*n*/, uint64_t /*g*/) const override { return {}; }
  PanelRange CodesNear(uint64_t /*byte*/) const override { return {}; }

 private:
  std::unique_ptr<QuantizedLinear> bf16_;
};

}  // namespace

bool IsCanonical(GgmlType type) {
  switch (type) {
    case kQ4_0:
    case kQ4_1:
    case kQ5_0:
    case kQ5_1:
    case kQ8_0:
    case kQ6_K:
    case kMXFP4:
    case kNVFP4:
      return true;
    default:
      return false;
  }
}

std::string FactorsOf(const std::string& tensor) {
  return tensor.substr(0, tensor.rfind('.')) + ".scale";
}

Result<std::unique_ptr<QuantizedLinear>> MakeBlockLinear(const Checkpoint& checkpoint,
                                                         BlockModule module) {
  const Restored& whole = *module.whole;
  if (whole.group % GroupOf(whole.pieces.front().tensor->type) != 0 ||
      whole.group > whole.columns) {
    return Malformed(fmt::format("module {}", module.name),
                     "blocks do not make groups of this size")
        .Found(fmt::format("group {} of {} input channels", whole.group, whole.columns))
        .Hint("The manifest beside the file does not describe it: convert the model again");
  }
  auto linear = std::make_unique<BlockLinear>(checkpoint, std::move(module));
  PREPACK_TRY(linear->ReadFactor());
  return std::unique_ptr<QuantizedLinear>(std::move(linear));
}

std::unique_ptr<QuantizedLinear> MakeFloatLinear(const Checkpoint& checkpoint, BlockModule module) {
  return std::make_unique<FloatLinear>(checkpoint, std::move(module));
}

Result<bool> HasZeroPoints(const Model& model, const Tensor& tensor) {
  if (!HasF16Minimum(tensor.type)) return true;
  constexpr uint64_t kBlocks = 1 << 16;  // at a time
  const GgmlTypeInfo& info = InfoOf(tensor.type);
  bool all = true;
  for (uint64_t offset = 0; all && offset < tensor.bytes; offset += kBlocks * info.bytes) {
    const uint64_t bytes = std::min(kBlocks * info.bytes, tensor.bytes - offset);
    PREPACK_TRY(model.Visit(tensor, offset, bytes, [&](const std::byte* blocks) {
      for (uint64_t at = 0; all && at < bytes; at += info.bytes) {
        all = ZeroPoint(tensor.type, DecodeBlock(tensor.type, blocks + at)).has_value();
      }
    }));
  }
  return all;
}

}  // namespace prepack::gguf
