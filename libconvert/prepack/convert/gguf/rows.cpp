#include "prepack/convert/gguf/rows.h"

#include <algorithm>
#include <utility>

namespace prepack::gguf {
namespace {

constexpr uint64_t kMostRows = uint64_t{1} << 40;
constexpr uint64_t kStripeWeights = uint64_t{1} << 21;
constexpr uint64_t kMostStripeRows = 512;
constexpr uint64_t kLeastStripeRows = 16;
constexpr uint64_t kKernelRows = 64;  // that kernels for codes in columns take at a time
// Between two rows that are read together there may be so many that nobody wants.
constexpr uint64_t kFurthest = 4;

// The end of the rows that are read together with the one at `begin`.
size_t EndOfRead(const std::vector<PlacedRow>& rows, size_t begin) {
  size_t end = begin + 1;
  while (end < rows.size() && rows[end].source == rows[begin].source &&
         rows[end].row - rows[end - 1].row <= kFurthest) {
    ++end;
  }
  return end;
}

}  // namespace

uint64_t RowPiece::rows() const {
  uint64_t rows = 1;
  for (const RowLoop& loop : loops) rows *= loop.count;
  return rows;
}

uint64_t RowPiece::Row(uint64_t index) const {
  auto row = static_cast<int64_t>(first);
  for (size_t i = loops.size(); i-- > 0;) {
    row += static_cast<int64_t>(index % loops[i].count) * loops[i].step;
    index /= loops[i].count;
  }
  return static_cast<uint64_t>(row);
}

bool RowPiece::IsInside(uint64_t end) const {
  if (first > kMostRows) return false;
  uint64_t count = 1;
  for (const RowLoop& loop : loops) {
    const auto step = static_cast<uint64_t>(loop.step);
    const uint64_t length = std::max<uint64_t>(1, loop.step < 0 ? 0 - step : step);
    if (loop.count == 0 || loop.count > kMostRows / count || loop.count > kMostRows / length) {
      return false;
    }
    count *= loop.count;
  }
  const auto [low, high] = Bounds();  // a row below 0 is a very high one
  return low <= first && high < end;
}

std::pair<uint64_t, uint64_t> RowPiece::Bounds() const {
  int64_t low = 0;
  int64_t high = 0;
  for (const RowLoop& loop : loops) {
    const int64_t reach = static_cast<int64_t>(loop.count - 1) * loop.step;
    (reach < 0 ? low : high) += reach;
  }
  return {first + static_cast<uint64_t>(low), first + static_cast<uint64_t>(high)};
}

std::optional<RowPiece> PieceFromJson(const Json& json) {
  constexpr size_t kMostLoops = decltype(RowPiece::loops)::capacity();
  const bool sound = json.is_array() && json.size() == 3 && json[1].is_number_unsigned() &&
                     json[2].is_array() && json[2].size() <= kMostLoops;
  if (!sound) return std::nullopt;
  RowPiece piece{.source = 0, .first = json[1].get<uint64_t>(), .loops = {}};
  for (const Json& loop : json[2]) {
    if (!loop.is_array() || loop.size() != 2 || !loop[0].is_number_unsigned() ||
        !loop[1].is_number_integer()) {
      return std::nullopt;
    }
    piece.loops.push_back({loop[0].get<uint64_t>(), loop[1].get<int64_t>()});
  }
  return piece;
}

Json LoopsJson(const RowPiece& piece) {
  Json loops = Json::array();
  for (const RowLoop& loop : piece.loops) loops.push_back({loop.count, loop.step});
  return loops;
}

RowList::RowList(std::span<const RowPiece> pieces) {
  for (const RowPiece& piece : pieces) {
    pieces_.push_back({piece, rows_});
    rows_ += piece.rows();
  }
}

PlacedRow RowList::Find(uint64_t index) const {
  const auto place = std::ranges::upper_bound(pieces_, index, {}, &Placed::before) - 1;
  return {.source = place->piece.source,
          .row = place->piece.Row(index - place->before),
          .index = index};
}

Status RowList::ForReads(uint64_t first, uint64_t count,
                         FunctionRef<Status(std::span<const PlacedRow> rows)> read) const {
  std::vector<PlacedRow> rows;
  rows.reserve(count);
  for (uint64_t index = first; index < first + count; ++index) rows.push_back(Find(index));
  std::ranges::stable_sort(rows, {},
                           [](const PlacedRow& row) { return std::pair(row.source, row.row); });
  for (size_t begin = 0; begin < rows.size();) {
    const size_t end = EndOfRead(rows, begin);
    PREPACK_TRY(read(std::span(rows).subspan(begin, end - begin)));
    begin = end;
  }
  return {};
}

uint64_t StripeRows(uint64_t columns) {
  const uint64_t rows = kStripeWeights / std::max<uint64_t>(columns, 1);
  const uint64_t whole = rows < kKernelRows ? kLeastStripeRows : kKernelRows;
  return std::clamp(rows / whole * whole, kLeastStripeRows, kMostStripeRows);
}

}  // namespace prepack::gguf
