#pragma once

// The tensors of the checkpoint that a GGUF file was made of, found in the file: the inverse of a
// manifest, which says of every tensor of the file which rows of the checkpoint it holds.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/convert/gguf/manifest.h"
#include "prepack/gguf/model.h"

namespace prepack::gguf {

// From rows of the checkpoint to their places in a piece: the loops of a RowPiece, turned round.
class InversePiece {
 public:
  // Nothing when two indices of the piece are one row, or might be.
  static std::optional<InversePiece> Of(const RowPiece& piece);

  // The index in the piece of a row; nothing if the piece does not have it.
  std::optional<uint64_t> Find(uint64_t row) const;

 private:
  struct Loop {
    uint64_t count = 0;
    uint64_t step = 0;
    uint64_t indices = 0;  // of the piece, from one turn to the next
    bool backwards = false;
  };

  uint64_t lowest_ = 0;
  FixedVector<Loop, 6> loops_ = {};  // the longest step first
};

// Rows of a tensor of the file, from `before` on, that are rows of one of the checkpoint; or its
// elements, counted through the tensor.
struct RestoredPiece {
  const Tensor* tensor = nullptr;
  uint64_t before = 0;
  RowPiece piece;
  InversePiece inverse;
  bool elements = false;
  float plus = 0;  // what was added to them
};

struct Restored {
  std::string name;  // as in the checkpoint before it was quantized
  std::optional<DType> dtype;
  TensorShape shape;
  uint64_t columns = 1;
  uint64_t rows = 0;
  std::vector<RestoredPiece> pieces;
  uint64_t group = 0;   // see ManifestTensor
  std::string problem;  // why it cannot be had; empty: it can

  bool is_stack() const { return shape.size() == 3; }
  // The type of all its pieces, which are rows; nothing if they differ, or are elements.
  std::optional<GgmlType> type() const;
  // Where a row is, and nothing if no piece has it: what a manifest says need not be true.
  struct Place {
    const RestoredPiece* piece = nullptr;
    uint64_t row = 0;  // of its tensor
  };
  std::optional<Place> Find(uint64_t row) const;
};

// All that tensors of the file say that they were made of, ascending by name. The model must
// outlive them.
Result<std::vector<Restored>> Restore(const Model& model, const Manifest& manifest);

// A manifest for a file whose tensors are to keep their names and rows.
Manifest NamesOfTheFile(const Model& model);

}  // namespace prepack::gguf
