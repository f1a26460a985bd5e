#include "prepack/formats/gptq/linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "prepack/base/checked.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/gptq/module.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/memory.h"
#include "prepack/kernels/nibble_columns.h"
#include "prepack/kernels/nibble_reorder.h"

namespace prepack::gptq {

namespace {

// Word rows at a time: they fill a cache line of every row of the panel.
constexpr uint64_t kPieceRows = 16;
// Words on their way into a panel: they stay in the L1 cache.
constexpr uint64_t kSlabBytes = 16 << 10;
// But at least this many rows of wide words at a time, so that the transposition fills cache lines.
constexpr uint64_t kMinSlabRows = 16;
// 512 bytes side by side make strided reading as fast as memory.
constexpr uint64_t kGptqWideRows = 128;

std::span<std::byte> AsBytes(uint32_t* words, uint64_t count) {
  return {reinterpret_cast<std::byte*>(words), count * kWideWordBytes};
}

}  // namespace

Linear::Linear(const Checkpoint& checkpoint, std::string_view module, const Shape& shape,
               const Settings& settings, bool reordered, uint32_t symmetric_field)
    : StoredLinear(checkpoint),
      shape_(shape),
      zero_rules_(settings),
      symmetric_field_(symmetric_field),
      unit_(UnitOf(shape.packing)) {
  module_.BorrowFrom(shape.qweight->name, module);
  n_ = shape.n;
  k_ = shape.k;
  if (reordered) {
    k_order_ = std::make_unique<KeptOrder>([&checkpoint, shape] {
      return ReadKOrder(checkpoint, *shape.g_idx, shape.k, shape.group_size, GroupDialect::kGptq);
    });
  }
  scheme_ = Scheme{.code = UnsignedCodeFor(shape.packing.bits),
                   .bits = shape.packing.bits,
                   .granularity = shape.groups == 1 ? Granularity::kChannel : Granularity::kGroup,
                   .group_size = shape.group_size,
                   .symmetric = settings.symmetric};
  stored_scale_dtype_ = shape.scales->dtype;
  zeros_may_borrow_ =
      !settings.symmetric && settings.zeros == Zeros::kMinusOne && shape.packing.bits != 3;
  // In activation order every panel needs words from all along K: cutting K would read them again.
  if (!reordered) wide_rows_ = kGptqWideRows;
  for (const StoredTensor* tensor : {shape.qweight, shape.qzeros, shape.scales, shape.g_idx}) {
    if (tensor != nullptr) AddSource(*tensor);
  }
}

Linear::Linear(const InStoredOrder& other)
    : StoredLinear(ViewOf{other.linear}),
      shape_(other.linear.shape_),
      zero_rules_(other.linear.zero_rules_),
      symmetric_field_(other.linear.symmetric_field_),
      unit_(other.linear.unit_) {
  Describe(other.linear);
  wide_rows_ = kGptqWideRows;
}

std::unique_ptr<QuantizedLinear> Linear::InModelOrder() const {
  return std::make_unique<Linear>(InStoredOrder{*this});
}

Status Linear::ReadCodes(const PanelRange& range, std::span<std::byte> out) const {
  Status status = CheckPanel(range, out.size());
  if (!status.ok() || out.empty()) return status;
  status = reordered() ? ReadOrdered(range, out) : ReadNatural(range, out);
  if (!status.ok() || !IsNibble(scheme_->code) || range.cols % 2 == 0) return status;
  // The high half of a row's last byte is not a code of the panel.
  const size_t row_bytes = PanelRowBytes(scheme_->code, range.cols);
  for (uint64_t row = 1; row <= range.rows; ++row) out[row * row_bytes - 1] &= std::byte{0x0F};
  return status;
}

Status Linear::ReadWordRows(const PanelRange& range, uint64_t row, uint64_t count,
                            uint32_t* out) const {
  const StoredTensor& qweight = *shape_.qweight;
  if (range.rows == n_) {
    return checkpoint().Read(qweight, row * n_ * kWideWordBytes, AsBytes(out, count * n_));
  }
  return checkpoint().ReadRuns(qweight,
                               {.offset = (row * n_ + range.n0) * kWideWordBytes,
                                .run_bytes = range.rows * kWideWordBytes,
                                .stride = n_ * kWideWordBytes,
                                .runs = count},
                               AsBytes(out, count * range.rows));
}

Status Linear::ReadUnits(const PanelRange& range, uint64_t unit, uint64_t count,
                         uint32_t* wide) const {
  const uint64_t row = unit * unit_.stored_words;
  const uint64_t rows = count * unit_.stored_words;
  if (unit_.stored_words == 1 && unit_.wide_words == 1) {
    return ReadWordRows(range, row, rows, wide);
  }
  Scratch<uint32_t> stored(rows * range.rows);
  Status status = ReadWordRows(range, row, rows, stored.data());
  if (status.ok()) Kernels().widen_codes(shape_.packing, stored.data(), count, range.rows, wide);
  return status;
}

// The words of the panel's output channels in rows [first, first + rows) of the tensor.
Status Linear::VisitWords(const PanelRange& range, uint64_t first, uint64_t rows,
                          ByteVisitor work) const {
  return checkpoint().VisitRuns(*shape_.qweight,
                                {.offset = (first * n_ + range.n0) * kWideWordBytes,
                                 .run_bytes = range.rows * kWideWordBytes,
                                 .stride = n_ * kWideWordBytes,
                                 .runs = rows},
                                work);
}

Status Linear::VisitUnits(const PanelRange& range, uint64_t first, uint64_t last,
                          UnitVisitor visit) const {
  if (unit_.stored_words == 1 && unit_.wide_words == 1) {
    return VisitWords(range, first, last - first, [&](const std::byte* words) {
      visit(words, n_ * kWideWordBytes, first, last - first);
    });
  }
  const uint64_t slab = std::max(kSlabBytes / kWideWordBytes / (unit_.wide_words * range.rows),
                                 CeilDiv(kMinSlabRows, unit_.wide_words));
  const uint64_t step = std::min(slab, last - first);
  Scratch<uint32_t> wide(step * unit_.wide_words * range.rows);
  for (uint64_t unit = first; unit < last; unit += step) {
    const uint64_t count = std::min(step, last - unit);
    PREPACK_TRY(ReadUnits(range, unit, count, wide.data()));
    visit(reinterpret_cast<const std::byte*>(wide.data()), range.rows * kWideWordBytes, unit,
          count);
  }
  return {};
}

// Some word rows at a time, while those behind them are on their way.
void Linear::VisitPieces(const PanelRange& range, const std::byte* rows, size_t stride,
                         uint64_t count, PieceVisitor visit) {
  for (uint64_t word = 0; word < count; word += kPieceRows) {
    const uint64_t next = word + kPieceRows;
    if (next < count) {
      PrefetchRows<kIntoL2>(rows + next * stride, stride, std::min(kPieceRows, count - next),
                            range.rows * kWideWordBytes);
    }
    visit(rows + word * stride, word, std::min(kPieceRows, count - word));
  }
}

// Bit strings of codes that are not whole nibbles or bytes: the stored words are transposed, which
// are fewer than wide ones, and every output channel then has its codes side by side.
bool Linear::IsDense(const PanelRange& range) const {
  const bool strings = scheme_->bits == 2 || (scheme_->bits == 3 && !shape_.packing.planar);
  return strings && range.k0 % unit_.codes == 0;
}

Status Linear::ReadDense(const PanelRange& range, std::span<std::byte> out) const {
  const uint64_t first = range.k0 / unit_.codes * unit_.stored_words;
  const uint64_t words = CeilDiv(range.cols, unit_.codes) * unit_.stored_words;
  // A cache line more than they need: streams a power of two apart would share a set of the cache.
  const size_t stream_bytes = words * kWideWordBytes + kLineBytes;
  const size_t row_bytes = PanelRowBytes(scheme_->code, range.cols);
  Scratch<std::byte> streams(range.rows * stream_bytes);
  PREPACK_TRY(VisitWords(range, first, words, [&](const std::byte* stored) {
    VisitPieces(range, stored, n_ * kWideWordBytes, words,
                [&](const std::byte* piece, uint64_t word, uint64_t count) {
                  Kernels().transpose_words(piece, n_ * kWideWordBytes, count, range.rows,
                                            streams.data() + word * kWideWordBytes, stream_bytes);
                });
  }));
  const KernelTable& kernels = Kernels();
  for (uint64_t row = 0; row < range.rows; ++row) {
    kernels.unpack_codes(scheme_->bits, U8(streams.data() + row * stream_bytes), range.cols,
                         U8(out.data()) + row * row_bytes);
  }
  return {};
}

Status Linear::ReadNatural(const PanelRange& range, std::span<std::byte> out) const {
  if (IsDense(range)) return ReadDense(range, out);
  const uint64_t per_word = WideCodesPerWord(scheme_->bits);
  return VisitUnits(range, range.k0 / unit_.codes, CeilDiv(range.k0 + range.cols, unit_.codes),
                    [&](const std::byte* wide, size_t stride, uint64_t unit, uint64_t count) {
                      VisitPieces(range, wide, stride, count * unit_.wide_words,
                                  [&](const std::byte* piece, uint64_t word, uint64_t words) {
                                    Deliver(range, piece, stride, words,
                                            unit * unit_.codes + word * per_word, out);
                                  });
                    });
}

Status Linear::ReadOrdered(const PanelRange& range, std::span<std::byte> out) const {
  PREPACK_TRY_ASSIGN(const SharedOrder read, KOrder());
  const std::span<const uint32_t> order = std::span(*read).subspan(range.k0, range.cols);
  const uint64_t units = CeilDiv(k_, unit_.codes);
  NibbleReorder reorder(units * unit_.wide_words, range.rows);
  PREPACK_TRY(VisitUnits(
      range, 0, units, [&](const std::byte* wide, size_t stride, uint64_t unit, uint64_t count) {
        reorder.Put(unit * unit_.wide_words, count * unit_.wide_words, wide, stride);
      }));
  const size_t row_bytes = PanelRowBytes(scheme_->code, range.cols);
  if (IsNibble(scheme_->code)) {
    reorder.Take(order, out.data(), row_bytes);
  } else {
    Scratch<uint32_t> nibbles(2 * order.size());
    NibblesOfBytes(order, nibbles);
    reorder.Take(nibbles, out.data(), row_bytes);
  }
  return {};
}

// Words of eight codes of four bits are eight columns of as many output channels.
bool Linear::HasColumns(const PanelRange& range) const {
  if (scheme_->bits != 4 || unit_.stored_words != 1 || unit_.wide_words != 1) return false;
  if (range.rows % kColumnChannels != 0) return false;
  if (reordered()) return range.cols % 2 == 0;
  return range.k0 % kCodesPerWideWord == 0 && range.cols % kCodesPerWideWord == 0;
}

Status Linear::ReadColumns(const PanelRange& range, std::span<std::byte> out) const {
  if (!HasColumns(range)) return QuantizedLinear::ReadColumns(range, out);
  Status status = CheckPanel(range, out.size());
  if (!status.ok() || out.empty()) return status;
  if (!reordered()) return ReadStoredColumns(range, out.data());

  PREPACK_TRY_ASSIGN(const SharedOrder read, KOrder());
  const uint64_t stored_k = CeilDiv(k_, unit_.codes) * unit_.codes;
  const size_t column_bytes = ColumnBytes(range.rows);
  Scratch<std::byte> columns(stored_k * column_bytes);
  PREPACK_TRY(ReadStoredColumns({.n0 = range.n0, .rows = range.rows, .k0 = 0, .cols = stored_k},
                                columns.data()));
  PickColumns(columns.data(), column_bytes, std::span(*read).subspan(range.k0, range.cols),
              out.data());
  return {};
}

// All codes of some words, in the order of the file.
Status Linear::ReadStoredColumns(const PanelRange& range, std::byte* out) const {
  const uint64_t first = range.k0 / unit_.codes;
  return VisitUnits(range, first, first + range.cols / unit_.codes,
                    [&](const std::byte* words, size_t stride, uint64_t /*unit*/, uint64_t count) {
                      Kernels().split_ordered_columns(words, stride, count, range.rows, U8(out),
                                                      ColumnBytes(range.rows));
                    });
}

void Linear::Deliver(const PanelRange& range, const std::byte* wide, size_t stride, uint64_t words,
                     uint64_t k0, std::span<std::byte> out) const {
  const uint64_t per_word = WideCodesPerWord(scheme_->bits);
  const size_t row_bytes = PanelRowBytes(scheme_->code, range.cols);
  const uint64_t end = k0 + words * per_word;
  if (k0 >= range.k0 && end <= range.k0 + range.cols) {
    std::byte* to = out.data() + PanelRowBytes(scheme_->code, k0 - range.k0);
    Kernels().transpose_words(wide, stride, words, range.rows, to, row_bytes);
    return;
  }
  const uint64_t begin = std::max(k0, range.k0);
  const uint64_t count = std::min(end, range.k0 + range.cols) - begin;
  const size_t skip = PanelRowBytes(scheme_->code, begin - k0);
  const size_t bytes = PanelRowBytes(scheme_->code, count);
  Scratch<std::byte> rows(range.rows * words * kWideWordBytes);
  Kernels().transpose_words(wide, stride, words, range.rows, rows.data(), words * kWideWordBytes);
  for (uint64_t row = 0; row < range.rows; ++row) {
    std::memcpy(out.data() + row * row_bytes + PanelRowBytes(scheme_->code, begin - range.k0),
                rows.data() + row * words * kWideWordBytes + skip, bytes);
  }
}

Status Linear::ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const {
  Status status = CheckRows(n0, rows, out.size());
  if (status.ok()) {
    status = ReadFloatColumns(checkpoint(), *shape_.scales, n_, groups(), n0, rows, out);
  }
  return status.ok() ? CheckScales(*shape_.scales, n0, rows, out) : status;
}

Status Linear::ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const {
  Status status = CheckRows(n0, rows, out.size());
  if (status.ok() && scheme_->symmetric) {
    PREPACK_TRY_ASSIGN(const bool plain, HasPlainZeros(n0, rows));
    if (plain) {
      std::ranges::fill(out, ZeroOfSymmetric(scheme()));
      return {};
    }
  }
  Scratch<uint8_t> group_zeros(rows);
  for (uint64_t g = 0; g < groups() && status.ok(); ++g) {
    status = ReadZeroFields(g, n0, group_zeros);
    for (uint64_t row = 0; row < rows; ++row) out[row * groups() + g] = group_zeros[row];
  }
  if (!status.ok() || !scheme_->symmetric) return status;
  status = CheckSymmetric(n0, rows, out);
  std::ranges::fill(out, ZeroOfSymmetric(scheme()));
  return status;
}

// Do the words that hold the zero points of a symmetric module say so throughout? The rule, and
// quick to see. False means that the fields have to be looked at one by one.
Result<bool> Linear::HasPlainZeros(uint64_t n0, uint64_t rows) const {
  if (rows == 0 || 32 % scheme_->bits != 0 || unit_.stored_words != 1) return false;
  const uint32_t expected = symmetric_field_ * (0xFFFFFFFFU / ((1U << scheme_->bits) - 1));
  const uint64_t first_word = n0 / unit_.codes;
  const uint64_t words = CeilDiv(n0 + rows, unit_.codes) - first_word;
  bool plain = true;
  for (uint64_t g = 0; g < groups() && plain; ++g) {
    Status status =
        checkpoint().Visit(*shape_.qzeros, (g * shape_.zero_words + first_word) * kWideWordBytes,
                           words * kWideWordBytes, [&](const std::byte* stored) {
                             uint32_t differences = 0;
                             for (uint64_t i = 0; i < words; ++i) {
                               uint32_t word = 0;
                               std::memcpy(&word, stored + i * kWideWordBytes, kWideWordBytes);
                               differences |= word ^ expected;
                             }
                             plain = differences == 0;
                           });
    if (!status.ok()) return status;
  }
  return plain;
}

// The zero points of one group, as z; of a symmetric module, as stored.
Status Linear::ReadZeroFields(uint64_t group, uint64_t n0, std::span<uint8_t> out) const {
  if (out.empty()) return {};
  const uint64_t first_unit = n0 / unit_.codes;
  const uint64_t units = CeilDiv(n0 + out.size(), unit_.codes) - first_unit;
  // The last unit of a row of 3-bit zero points may be cut short.
  Scratch<uint32_t> words(units * unit_.stored_words, 0);
  const uint64_t first_word = first_unit * unit_.stored_words;
  const uint64_t stored = std::min<uint64_t>(words.size(), shape_.zero_words - first_word);
  Status status =
      checkpoint().Read(*shape_.qzeros, (group * shape_.zero_words + first_word) * kWideWordBytes,
                        AsBytes(words.data(), stored));
  if (!status.ok()) return status;

  const uint64_t first_n = first_unit * unit_.codes;
  if (!scheme_->symmetric && LosesZeros(zero_rules_, shape_.packing)) {
    const uint32_t all_ones = (1U << scheme_->bits) - 1;
    const uint64_t fields = std::min(units * unit_.codes, n_ - first_n);
    for (uint64_t i = 0; i < fields; ++i) {
      if (PackedCode(shape_.packing, words, i) != all_ones) continue;
      return Malformed(checkpoint().Where(*shape_.qzeros),
                       "a zero point of 0 was stored as -1, which may have damaged its neighbours")
          .Found(fmt::format("field {} at channel {}, group {}", all_ones, first_n + i, group))
          .Expected(
              "a producer that is known to subtract whole words (gptqmodel 0.9 or later, "
              "auto-round), or the format gptq_v2")
          .Hint(
              "Export the model again as gptq_v2 or, if one of those producers wrote it, name the "
              "producer in meta.quantizer of the config")
          .Id(FindingId("gptq-zero-lost"));
    }
  }
  if (!scheme_->symmetric) RestoreZeroWords(zero_rules_, shape_.packing, words);
  for (uint64_t row = 0; row < out.size(); ++row) {
    const uint32_t field = PackedCode(shape_.packing, words, n0 + row - first_n);
    out[row] = static_cast<uint8_t>(
        scheme_->symmetric ? field : ZeroFromField(zero_rules_, shape_.packing, field));
  }
  return {};
}

Status Linear::CheckSymmetric(uint64_t n0, uint64_t rows, std::span<const uint8_t> fields) const {
  const auto odd =
      std::ranges::find_if(fields, [this](uint8_t field) { return field != symmetric_field_; });
  if (odd == fields.end()) return {};
  const auto index = static_cast<uint64_t>(odd - fields.begin());
  const auto [low, high] = std::ranges::minmax(fields);
  return Malformed(checkpoint().Where(*shape_.qzeros),
                   "the module claims to be symmetric, but its zero points vary")
      .Found(fmt::format("{} at channel {}, group {}; {} to {} in channels {} to {}", *odd,
                         n0 + index / groups(), index % groups(), low, high, n0, n0 + rows - 1))
      .Expected(fmt::format("{} throughout", symmetric_field_))
      .Hint("Set sym to false if the module is not symmetric, or export it again")
      .Id(FindingId("zero-point-not-symmetric"));
}

// Linear: where a number lies.

namespace {

constexpr uint32_t kGptqWordBits = 8 * kWideWordBytes;

// Code `index` of a packed bit string whose words are `stride` apart, the first at word `first` of
// the tensor.
class PackedString {
 public:
  PackedString(const StoredTensor& tensor, const CodePacking& packing, uint64_t first,
               uint64_t stride)
      : tensor_(tensor), packing_(packing), first_(first), stride_(stride) {}

  StoredBits Where(uint64_t index) const {
    const bool whole = kGptqWordBits % packing_.bits == 0;  // then planes make no difference
    if (packing_.planar && !whole) return WhereInPlanes(index);
    StoredBits found;
    Add(index * packing_.bits, packing_.bits, found);
    return found;
  }

 private:
  // Planes of 8, 4, 2 and 1 bits, as the bits of the width say; the widest holds the lowest bits.
  StoredBits WhereInPlanes(uint64_t index) const {
    const uint64_t unit = index / kGptqWordBits * kGptqWordBits * packing_.bits;
    StoredBits found;
    uint32_t below = 0;
    for (const uint32_t width : {8U, 4U, 2U, 1U}) {
      if ((packing_.bits & width) == 0) continue;
      Add(unit + uint64_t{below} * kGptqWordBits + index % kGptqWordBits * width, width, found);
      below += width;
    }
    return found;
  }

  // Bits [bit, bit + bits) of the string; a run that crosses words is two.
  void Add(uint64_t bit, uint32_t bits, StoredBits& found) const {
    const auto shift = static_cast<uint32_t>(bit % kGptqWordBits);
    const uint32_t here = std::min(bits, kGptqWordBits - shift);
    const uint64_t word = first_ + bit / kGptqWordBits * stride_;
    found.push_back({.tensor = tensor_.name, .bit = word * kGptqWordBits + shift, .bits = here});
    if (here == bits) return;
    found.push_back(
        {.tensor = tensor_.name, .bit = (word + stride_) * kGptqWordBits, .bits = bits - here});
  }

  const StoredTensor& tensor_;
  CodePacking packing_;
  uint64_t first_;
  uint64_t stride_;
};

}  // namespace

StoredBits Linear::WhereCode(uint64_t n, uint64_t k) const {
  return PackedString(*shape_.qweight, shape_.packing, n, n_).Where(k);
}

StoredBits Linear::WhereScale(uint64_t n, uint64_t g) const {
  return WhereElement(*shape_.scales, g * n_ + n);
}

StoredBits Linear::WhereZeroPoint(uint64_t n, uint64_t g) const {
  return PackedString(*shape_.qzeros, shape_.packing, g * shape_.zero_words, 1).Where(n);
}

PanelRange Linear::CodesNear(uint64_t byte) const {
  return {.n0 = byte / kWideWordBytes % n_, .rows = 1, .k0 = 0, .cols = k_};
}

}  // namespace prepack::gptq
