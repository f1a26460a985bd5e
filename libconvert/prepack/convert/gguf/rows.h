#pragma once

// Which rows of the checkpoint the rows of a GGUF tensor are.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/function_ref.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/container/json.h"

namespace prepack::gguf {

struct RowLoop {
  uint64_t count = 0;
  int64_t step = 0;
};

// Rows of one source in an order of nested loops, the outermost first: row `first` plus the sum of
// index · step.
struct RowPiece {
  size_t source = 0;
  uint64_t first = 0;
  FixedVector<RowLoop, 6> loops = {};

  uint64_t rows() const;
  // Row `index` of the piece, as a row of the source.
  uint64_t Row(uint64_t index) const;
  // Are there rows, and all of them below `end`?
  bool IsInside(uint64_t end) const;
  // The lowest row and the highest, of a piece that is inside something.
  std::pair<uint64_t, uint64_t> Bounds() const;
};

// A piece as JSON has it: [source, first, [[count, step], ...]]. What names the source is for the
// caller; here it is 0. Nothing for what is no piece.
std::optional<RowPiece> PieceFromJson(const Json& json);
// The loops of it.
Json LoopsJson(const RowPiece& piece);

// Where a tensor comes from that the converter has not left in whole rows.
struct Origin {
  std::string source;              // the tensor that it was made of; empty: of none, or unknown
  std::vector<RowPiece> elements;  // as rows of one element each; none: only the converter knows
  float plus = 0;                  // what was added to them
};

// Row `index` of a tensor is row `row` of a source.
struct PlacedRow {
  size_t source = 0;
  uint64_t row = 0;
  uint64_t index = 0;
};

// All rows of a tensor, in their order.
class RowList {
 public:
  explicit RowList(std::span<const RowPiece> pieces);

  uint64_t rows() const { return rows_; }
  // Where row `index` comes from.
  PlacedRow Find(uint64_t index) const;
  // Hands over rows [first, first + count), those together that are worth one read: of one source,
  // ascending and close to each other.
  Status ForReads(uint64_t first, uint64_t count,
                  FunctionRef<Status(std::span<const PlacedRow> rows)> read) const;

 private:
  struct Placed {
    RowPiece piece;
    uint64_t before = 0;  // rows in front of it
  };

  std::vector<Placed> pieces_;
  uint64_t rows_ = 0;
};

// Rows to do at a time, of a tensor with so many columns: enough to hold whole heads, whose rows
// the converter lets change places.
uint64_t StripeRows(uint64_t columns);

}  // namespace prepack::gguf
