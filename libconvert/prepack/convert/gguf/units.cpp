#include "prepack/convert/gguf/units.h"

#include <algorithm>
#include <utility>

#include "prepack/packed/small_parts.h"

namespace prepack::gguf {
namespace {

// Adds what rows of a piece are made of.
void AddSources(const Checkpoint& checkpoint, const Source& source, const RowPiece& piece,
                std::vector<const StoredTensor*>& tensors) {
  if (source.plain != nullptr) {
    tensors.push_back(source.plain);
    return;
  }
  const auto [low, high] = piece.Bounds();
  const uint64_t last = high / source.rows_of_module();
  for (uint64_t i = low / source.rows_of_module(); i <= last; ++i) {
    const auto of_module = ReplacedTensors(checkpoint, *source.modules[i], false);
    tensors.insert(tensors.end(), of_module.begin(), of_module.end());
  }
}

// For each matrix of a stack, the last file of the checkpoint that it needs.
std::vector<size_t> LastFiles(const Checkpoint& checkpoint, const Plan& plan,
                              const PlannedTensor& tensor, uint64_t rows_of_matrix) {
  std::vector<size_t> files(tensor.row_count() / rows_of_matrix);
  uint64_t before = 0;
  for (const RowPiece& piece : tensor.rows) {
    std::vector<const StoredTensor*> sources;
    AddSources(checkpoint, plan.sources.sources[piece.source], piece, sources);
    const uint64_t first = before / rows_of_matrix;
    before += piece.rows();
    const uint64_t end = (before - 1) / rows_of_matrix + 1;
    for (const StoredTensor* source : sources) {
      for (uint64_t i = first; i < end; ++i) files[i] = std::max<size_t>(files[i], source->file);
    }
  }
  return files;
}

}  // namespace

std::vector<OutputUnit> DivideIntoUnits(const Checkpoint& checkpoint, const Plan& plan) {
  std::vector<OutputUnit> units;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const PlannedTensor& tensor = plan.tensors[i];
    const uint64_t rows = tensor.row_count();
    const uint64_t matrices = tensor.dims.size() == 3 ? tensor.dims[2] : 1;
    if (rows == 0 || rows % matrices != 0) {
      units.push_back({.tensor = i, .rows = rows});
      continue;
    }
    const uint64_t of_matrix = rows / matrices;
    const std::vector<size_t> files = LastFiles(checkpoint, plan, tensor, of_matrix);
    for (uint64_t matrix = 0; matrix < matrices; ++matrix) {
      if (matrix == 0 || files[matrix] != files[matrix - 1]) {
        units.push_back({.tensor = i, .first = matrix * of_matrix});
      }
      units.back().rows += of_matrix;
    }
  }
  return units;
}

std::vector<const StoredTensor*> SourcesOf(const Checkpoint& checkpoint, const Plan& plan,
                                           const OutputUnit& unit) {
  std::vector<const StoredTensor*> tensors;
  uint64_t before = 0;
  for (const RowPiece& piece : plan.tensors[unit.tensor].rows) {
    const uint64_t begin = std::exchange(before, before + piece.rows());
    if (before <= unit.first || begin >= unit.first + unit.rows) continue;
    AddSources(checkpoint, plan.sources.sources[piece.source], piece, tensors);
  }
  std::ranges::sort(tensors, {}, [](const StoredTensor* tensor) {
    return std::pair(tensor->file, tensor->offset);
  });
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
  return tensors;
}

}  // namespace prepack::gguf
