#include "prepack/convert/gguf/restored.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "prepack/base/checked.h"

namespace prepack::gguf {
namespace {

constexpr size_t kMostPieces = 4096;  // of a tensor: they are looked through for every row

uint64_t Product(const TensorShape& shape) {
  return CheckedProduct({shape.data(), shape.size()}).value_or(0);
}

class Restorer {
 public:
  Restorer(const Model& model, const Manifest& manifest) : model_(model), manifest_(manifest) {}

  Result<std::vector<Restored>> Run() {
    for (const auto& [name, record] : manifest_.tensors) {
      const Tensor* tensor = model_.FindTensor(name);
      if (tensor == nullptr) continue;
      if (tensor->type != record.type) {
        return Malformed(model_.Where(*tensor), "the manifest has another type")
            .Found(InfoOf(tensor->type).name)
            .Expected(InfoOf(record.type).name);
      }
      const Origin& origin = record.origin;
      PREPACK_TRY(AddPieces(*tensor, record.rows, record, false));
      PREPACK_TRY(AddPieces(*tensor, origin.elements, record, true));
      if (origin.source.empty() || !record.rows.empty() || !origin.elements.empty()) continue;
      Restored& computed = Of(origin.source);
      computed.problem =
          fmt::format("llama.cpp's converter computed {} from it, which cannot be undone", name);
    }
    std::vector<Restored> all;
    for (auto& [name, restored] : found_) {
      Finish(restored);
      all.push_back(std::move(restored));
    }
    return all;
  }

 private:
  Restored& Of(const std::string& name) {
    const auto [it, is_new] = found_.try_emplace(name);
    Restored& restored = it->second;
    if (!is_new) return restored;
    restored.name = name;
    if (const auto shape = manifest_.shapes.find(name); shape != manifest_.shapes.end()) {
      restored.dtype = shape->second.dtype;
      restored.shape = shape->second.shape;
    }
    return restored;
  }

  Status AddPieces(const Tensor& tensor, const std::vector<RowPiece>& pieces,
                   const ManifestTensor& record, bool elements) {
    if (pieces.empty()) return {};
    const auto malformed = [&](std::string_view what) {
      return Malformed(model_.Where(tensor), what).Hint("Convert the model again");
    };
    uint64_t weights = 1;
    for (const uint64_t dim : tensor.dims) weights *= dim;
    const uint64_t columns = tensor.dims.empty() ? 1 : tensor.dims.front();
    uint64_t before = 0;
    uint64_t next = 0;
    for (const RowPiece& piece : pieces) {
      before = next;
      next += piece.rows();
      Restored& restored = Of(manifest_.sources[piece.source]);
      const std::optional<InversePiece> inverse = InversePiece::Of(piece);
      if (!inverse || restored.pieces.size() == kMostPieces) {
        restored.problem =
            fmt::format("its rows are in {} in an order that cannot be undone", tensor.name);
        continue;
      }
      restored.pieces.push_back({.tensor = &tensor,
                                 .before = before,
                                 .piece = piece,
                                 .inverse = *inverse,
                                 .elements = elements,
                                 .plus = record.origin.plus});
      restored.group = record.group;
    }
    const uint64_t expected = elements || columns == 0 ? weights : weights / columns;
    if (next != expected) return malformed("the manifest has other rows than the tensor");
    return {};
  }

  // A tied embedding may be in the file twice.
  static void DropCopies(Restored& restored) {
    const uint64_t all = restored.shape.empty() ? UINT64_MAX : Product(restored.shape);
    uint64_t weights = 0;
    std::erase_if(restored.pieces, [&](const RestoredPiece& piece) {
      if (weights >= all) return true;
      weights += piece.piece.rows() * (piece.elements ? 1 : piece.tensor->dims.front());
      return false;
    });
  }

  // Compares what the pieces have with what there should be.
  static void Finish(Restored& restored) {
    uint64_t weights = 0;
    uint64_t columns = 0;
    DropCopies(restored);
    for (const RestoredPiece& piece : restored.pieces) {
      const uint64_t width = piece.elements ? 1 : piece.tensor->dims.front();
      weights += piece.piece.rows() * width;
      if (piece.elements) continue;
      if (columns != 0 && columns != width) restored.problem = "its rows have different lengths";
      columns = width;
    }
    if (restored.shape.empty()) {
      restored.shape =
          columns == 0 ? TensorShape{weights} : TensorShape{weights / columns, columns};
    }
    restored.columns = restored.shape.back();
    if (columns != 0 && columns != restored.columns) {
      restored.problem = "its rows have another length than in the checkpoint";
    }
    const uint64_t all = Product(restored.shape);
    restored.rows = restored.columns == 0 ? 0 : all / restored.columns;
    if (restored.problem.empty() && weights != all) {
      restored.problem = fmt::format("the file holds {} of its {} weights", weights, all);
    }
  }

  const Model& model_;
  const Manifest& manifest_;
  std::map<std::string, Restored> found_;
};

}  // namespace

std::optional<InversePiece> InversePiece::Of(const RowPiece& piece) {
  InversePiece inverse;
  auto lowest = static_cast<int64_t>(piece.first);
  uint64_t indices = 1;
  for (size_t i = piece.loops.size(); i-- > 0;) {
    const RowLoop& loop = piece.loops[i];
    const bool backwards = loop.step < 0;
    if (backwards) lowest += static_cast<int64_t>(loop.count - 1) * loop.step;
    const auto step = static_cast<uint64_t>(backwards ? -loop.step : loop.step);
    if (loop.count > 1) inverse.loops_.push_back({loop.count, step, indices, backwards});
    indices *= loop.count;
  }
  inverse.lowest_ = static_cast<uint64_t>(lowest);
  // The longest steps first. There are few; g++ 12 warns of std::sort on so small an array.
  for (size_t i = 1; i < inverse.loops_.size(); ++i) {
    for (size_t j = i; j > 0 && inverse.loops_[j - 1].step < inverse.loops_[j].step; --j) {
      std::swap(inverse.loops_[j - 1], inverse.loops_[j]);
    }
  }
  uint64_t reach = 0;  // of the loops with shorter steps
  for (size_t i = inverse.loops_.size(); i-- > 0;) {
    const Loop& loop = inverse.loops_[i];
    if (loop.step <= reach) return std::nullopt;
    reach += (loop.count - 1) * loop.step;
  }
  return inverse;
}

std::optional<uint64_t> InversePiece::Find(uint64_t row) const {
  if (row < lowest_) return std::nullopt;
  uint64_t left = row - lowest_;
  uint64_t index = 0;
  for (const Loop& loop : loops_) {
    const uint64_t turn = std::min(left / loop.step, loop.count - 1);
    left -= turn * loop.step;
    index += (loop.backwards ? loop.count - 1 - turn : turn) * loop.indices;
  }
  return left == 0 ? std::optional(index) : std::nullopt;
}

std::optional<GgmlType> Restored::type() const {
  if (pieces.empty()) return std::nullopt;
  const GgmlType first = pieces.front().tensor->type;
  const bool same = std::ranges::all_of(pieces, [&](const RestoredPiece& piece) {
    return !piece.elements && piece.tensor->type == first;
  });
  return same ? std::optional(first) : std::nullopt;
}

std::optional<Restored::Place> Restored::Find(uint64_t row) const {
  for (const RestoredPiece& piece : pieces) {
    if (const std::optional<uint64_t> index = piece.inverse.Find(row)) {
      return Place{.piece = &piece, .row = piece.before + *index};
    }
  }
  return std::nullopt;
}

Result<std::vector<Restored>> Restore(const Model& model, const Manifest& manifest) {
  return Restorer(model, manifest).Run();
}

Manifest NamesOfTheFile(const Model& model) {
  Manifest manifest;
  for (const Tensor& tensor : model.tensors()) {
    ManifestTensor& record = manifest.tensors[tensor.name];
    record.type = tensor.type;
    const uint64_t columns = tensor.dims.empty() ? 0 : tensor.dims.front();
    uint64_t weights = 1;
    for (const uint64_t dim : tensor.dims) weights *= dim;
    if (columns == 0 || weights == 0) continue;
    RowPiece piece{.source = manifest.sources.size(), .first = 0, .loops = {}};
    piece.loops.push_back({.count = weights / columns, .step = 1});
    record.rows.push_back(piece);
    manifest.sources.push_back(tensor.name);
    std::vector<uint64_t> shape(tensor.dims.begin(), tensor.dims.end());
    std::ranges::reverse(shape);
    manifest.shapes[tensor.name] = {std::nullopt, TensorShape(shape)};
  }
  return manifest;
}

}  // namespace prepack::gguf
