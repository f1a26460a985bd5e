// RowLinear: how stored rows become rows of a panel.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "prepack/base/checked.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/rows/row_checks.h"
#include "prepack/formats/rows/row_linear.h"
#include "prepack/kernels/codes.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/nibble_columns.h"
#include "prepack/kernels/nibble_reorder.h"

namespace prepack {

namespace {}  // namespace

Status RowLinear::ReadCodes(const PanelRange& range, std::span<std::byte> out) const {
  Status status = CheckPanel(range, out.size());
  if (!status.ok() || out.empty()) return status;
  return reordered() ? ReadOrdered(range, out) : ReadStoredCodes(range, out);
}

Status RowLinear::ReadStoredCodes(const PanelRange& range, std::span<std::byte> out) const {
  if (parts_.stored == RowCodes::kBytes) return ReadBytes(range, out);
  return WholeBits() ? ReadWholeWords(range, out) : ReadOddBits(range, out);
}

// Packed codes of 4 or 8 bits: the bytes of a row are those of the panel.
Status RowLinear::ReadWholeWords(const PanelRange& range, std::span<std::byte> out) const {
  const size_t wanted = PanelRowBytes(scheme_->code, range.cols);
  const uint64_t first_row = parts_.expert * n_ + range.n0;
  PREPACK_TRY(checkpoint().ReadRuns(
      *parts_.codes,
      {.offset = first_row * row_bytes_ + PanelRowBytes(scheme_->code, range.k0),
       .run_bytes = wanted,
       .stride = row_bytes_,
       .runs = range.rows},
      out));
  if (IsNibble(scheme_->code) && range.cols % 2 != 0) {
    // The high half of a row's last byte is padding; what the file holds there is not ours to show.
    for (uint64_t row = 0; row < range.rows; ++row) out[(row + 1) * wanted - 1] &= std::byte{0x0F};
  }
  return {};
}

std::optional<QuantizedLinear::CodesInSource> RowLinear::FindCodes(const PanelRange& range) const {
  if (reordered() || range.cols != k_) return std::nullopt;
  const bool are_codes =
      parts_.stored == RowCodes::kBytes ? scheme_->code == CodeType::kS8 : WholeBits();
  const bool are_padded =
      row_bytes_ != PanelRowBytes(scheme_->code, k_) || (IsNibble(scheme_->code) && k_ % 2 != 0);
  if (!are_codes || are_padded) return std::nullopt;
  return CodesInSource{.tensor = parts_.codes->name,
                       .offset = (parts_.expert * n_ + range.n0) * row_bytes_};
}

// Packed codes of any other width, from the first whole word or byte in front of those wanted; if
// that is further in front, rows are cut afterwards.
Status RowLinear::ReadOddBits(const PanelRange& range, std::span<std::byte> out) const {
  const uint32_t bits = scheme_->bits;
  const bool aligned = parts_.stored == RowCodes::kWordAligned;
  const uint64_t unit = aligned ? 32 / bits : 8;  // codes, as many as whole words or `bits` bytes
  const uint64_t first = range.k0 / unit * unit;
  const uint64_t count = range.k0 + range.cols - first;
  const uint64_t skip = aligned ? first / unit * 4 : first / unit * bits;
  const uint64_t words = aligned ? CeilDiv(count, unit) : 0;
  const bool is_nibble = IsNibble(scheme_->code);
  const bool cut = first != range.k0;
  Scratch<std::byte> dense(aligned ? DenseBytes(bits, words * unit) : 0);
  Scratch<std::byte> row_codes(cut ? PanelRowBytes(scheme_->code, count) : 0);
  const size_t wanted = PanelRowBytes(scheme_->code, range.cols);
  const auto unpack_row = [&](const std::byte* stream, std::byte* to) {
    if (aligned) {
      WordsToDense(bits, U8(stream), words, U8(dense.data()));
      stream = dense.data();
    }
    std::byte* codes = cut ? row_codes.data() : to;
    (is_nibble ? UnpackToNibbles : UnpackToBytes)(bits, U8(stream), count, U8(codes));
    if (cut) std::memcpy(to, codes + PanelRowBytes(scheme_->code, range.k0 - first), wanted);
  };
  PREPACK_TRY(checkpoint().Visit(*parts_.codes, (parts_.expert * n_ + range.n0) * row_bytes_,
                                 range.rows * row_bytes_, [&](const std::byte* stored) {
                                   for (uint64_t row = 0; row < range.rows; ++row) {
                                     unpack_row(stored + row * row_bytes_ + skip,
                                                out.data() + row * wanted);
                                   }
                                 }));
  if (is_nibble && range.cols % 2 != 0) {
    for (uint64_t row = 0; row < range.rows; ++row) out[(row + 1) * wanted - 1] &= std::byte{0x0F};
  }
  return {};
}

// One stored byte per code, as it is.
Status RowLinear::ReadStoredBytes(const PanelRange& range, std::span<std::byte> out) const {
  return checkpoint().ReadRuns(
      *parts_.codes,
      {.offset = FirstByte(range), .run_bytes = range.cols, .stride = k_, .runs = range.rows}, out);
}

// One stored byte per code.
Status RowLinear::ReadBytes(const PanelRange& range, std::span<std::byte> out) const {
  if (IsNibble(scheme_->code)) return ReadBytesAsNibbles(range, out);
  PREPACK_TRY(ReadStoredBytes(range, out));
  switch (scheme_->code) {
    case CodeType::kF8E4M3:
      return CheckFp8Codes(checkpoint(), *parts_.codes, range, out);
    case CodeType::kU8: {
      const bool sound =
          OffsetBytes(U8(out.data()), out.size(), CodeOffset(), MaxCode(), U8(out.data()));
      return sound ? Status() : OutsideBits(range, out);
    }
    case CodeType::kS8:
    case CodeType::kU4:
    case CodeType::kF4E2M1:
    case CodeType::kBF16:  // no format stores it
      break;
  }
  return {};
}

Status RowLinear::ReadBytesAsNibbles(const PanelRange& range, std::span<std::byte> out) const {
  const size_t row_bytes = PanelRowBytes(scheme_->code, range.cols);
  bool sound = true;
  Status status = checkpoint().Visit(
      *parts_.codes, FirstByte(range), (range.rows - 1) * k_ + range.cols,
      [&](const std::byte* stored) {
        for (uint64_t row = 0; row < range.rows; ++row) {
          sound &= OffsetBytesToNibbles(U8(stored + row * k_), range.cols, CodeOffset(), MaxCode(),
                                        U8(out.data()) + row * row_bytes);
        }
      });
  if (!status.ok() || sound) return status;
  Scratch<std::byte> stored(range.rows * range.cols);  // only now: to say which one it is
  const std::span<std::byte> bytes(stored.data(), range.rows * range.cols);
  status = ReadStoredBytes(range, bytes);
  return status.ok() ? OutsideBits(range, bytes) : status;
}

// The error for the first of the bytes [rows, cols] that the scheme does not have.
Status RowLinear::OutsideBits(const PanelRange& range, std::span<const std::byte> stored) const {
  const int half = 1 << (scheme_->bits - 1);
  for (size_t i = 0; i < stored.size(); ++i) {
    const auto byte = std::to_integer<uint8_t>(stored[i]);
    // kU8 bytes have been moved by half already, modulo 256.
    const int value =
        SignedByte(scheme_->code == CodeType::kU8 ? static_cast<uint8_t>(byte - half) : byte);
    if (value >= -half && value < half) continue;
    const std::string place =
        fmt::format("[{}, {}]", range.n0 + i / range.cols, range.k0 + i % range.cols);
    return Malformed(checkpoint().Where(*parts_.codes),
                     fmt::format("a weight is outside {} bits", scheme_->bits))
        .Found(fmt::format("{} at {}", value, place))
        .Expected(fmt::format("{} to {}", -half, half - 1))
        .Hint("Either the config's num_bits or the tensor is wrong")
        .Id(FindingId("code-outside-bits"));
  }
  return {};
}

// Activation order.
Status RowLinear::ReadOrdered(const PanelRange& range, std::span<std::byte> out) const {
  PREPACK_TRY_ASSIGN(const SharedOrder read, KOrder());
  const auto order = std::span(*read).subspan(range.k0, range.cols);
  const bool as_stored = parts_.stored != RowCodes::kBytes && WholeBits();
  if (as_stored) {  // the bytes of a row are those of a panel, and whole words
    return checkpoint().Visit(
        *parts_.codes, (parts_.expert * n_ + range.n0) * row_bytes_, range.rows * row_bytes_,
        [&](const std::byte* rows) { Reorder(rows, row_bytes_, range.rows, order, out.data()); });
  }
  // Else unpacked first, into rows that are filled up to whole words.
  const PanelRange whole{.n0 = range.n0, .rows = range.rows, .k0 = 0, .cols = k_};
  const size_t row_bytes = PanelRowBytes(scheme_->code, k_);
  const size_t stride = CeilDiv(row_bytes, kWideWordBytes) * kWideWordBytes;
  Scratch<std::byte> natural(range.rows * stride);
  PREPACK_TRY(ReadStoredCodes(whole, std::span(natural.data(), range.rows * row_bytes)));
  for (uint64_t row = range.rows; stride != row_bytes && row-- > 0;) {
    std::memmove(natural.data() + row * stride, natural.data() + row * row_bytes, row_bytes);
    std::memset(natural.data() + row * stride + row_bytes, 0, stride - row_bytes);
  }
  Reorder(natural.data(), stride, range.rows, order, out.data());
  return {};
}

// Codes change places as columns of nibbles (kernels/nibble_reorder.h), for which the words of rows
// that are `stride` bytes long become rows of words first.
void RowLinear::Reorder(const std::byte* natural, size_t stride, uint64_t rows,
                        std::span<const uint32_t> order, std::byte* out) const {
  constexpr uint64_t kPieceWords = 64;  // of every row at a time: with 64 rows, half an L1 cache
  TransposeUnitsFn* const transpose = TransposeUnits(kWideWordBytes);
  const uint64_t words = stride / kWideWordBytes;
  NibbleReorder reorder(words, rows);
  Scratch<std::byte> piece(kPieceWords * rows * kWideWordBytes);
  for (uint64_t word = 0; word < words; word += kPieceWords) {
    const uint64_t count = std::min(kPieceWords, words - word);
    transpose(natural + word * kWideWordBytes, stride, rows, count, piece.data(),
              rows * kWideWordBytes);
    reorder.Put(word, count, piece.data(), rows * kWideWordBytes);
  }
  const size_t to_bytes = PanelRowBytes(scheme_->code, order.size());
  if (!IsNibble(scheme_->code)) {
    Scratch<uint32_t> nibbles(2 * order.size());
    NibblesOfBytes(order, nibbles);
    return reorder.Take(nibbles, out, to_bytes);
  }
  reorder.Take(order, out, to_bytes);
  if (order.size() % 2 == 0) return;
  for (uint64_t row = 1; row <= rows; ++row) out[row * to_bytes - 1] &= std::byte{0x0F};
}

}  // namespace prepack
