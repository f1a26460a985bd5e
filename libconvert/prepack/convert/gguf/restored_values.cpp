#include "prepack/convert/gguf/restored_values.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "prepack/base/float_convert.h"
#include "prepack/gguf/blocks.h"

namespace prepack::gguf {
namespace {

// Of a tensor whose elements change places: all of it is in memory then.
constexpr uint64_t kMostInMemory = uint64_t{1} << 30;

class Restoring {
 public:
  Restoring(const Model& model, const Restored& restored, DType dtype, File& file, uint64_t offset)
      : model_(model),
        restored_(restored),
        dtype_(dtype),
        element_(DTypeBits(dtype) / 8),
        file_(file),
        offset_(offset) {}

  Result<uint64_t> Run() {
    const bool elements = std::ranges::any_of(restored_.pieces, &RestoredPiece::elements);
    const uint64_t all = restored_.rows * restored_.columns;
    if (elements && all > kMostInMemory / element_) {
      return Unsupported(restored_.name, "too large for a tensor whose elements change places");
    }
    if (elements) buffer_.resize(all * element_);
    seen_.resize(elements ? all : restored_.rows);
    unit_ = elements ? 1 : restored_.columns;
    for (const RestoredPiece& piece : restored_.pieces) PREPACK_TRY(Take(piece));
    // As many were taken as there are.
    if (!std::ranges::all_of(seen_, [](bool seen) { return seen; })) return Twice();
    if (elements) PREPACK_TRY(file_.WriteAt(offset_, buffer_));
    return wrong_;
  }

 private:
  Status Twice() const {
    return Malformed(restored_.name, "the file does not hold all of its rows")
        .Hint("The manifest beside the file does not describe it: convert the model again");
  }

  // Row by row of the tensor of the file.
  Status Take(const RestoredPiece& piece) {
    const Tensor& tensor = *piece.tensor;
    const uint64_t columns = tensor.dims.empty() ? 1 : tensor.dims.front();
    const uint64_t row_bytes = BytesOf(tensor.type, {columns}).value_or(0);
    const uint64_t width = piece.elements ? 1 : columns;
    const uint64_t first = piece.before * width;
    const uint64_t count = piece.piece.rows() * width;
    std::vector<float> weights(columns);
    for (uint64_t row = first / columns; row * columns < first + count; ++row) {
      PREPACK_TRY(model_.Visit(tensor, row * row_bytes, row_bytes, [&](const std::byte* bytes) {
        Dequantize(tensor.type, {bytes, static_cast<size_t>(row_bytes)}, weights);
      }));
      if (!piece.elements) {
        PREPACK_TRY(Put(piece.piece.Row(row - piece.before) * columns, weights, piece.plus));
        continue;
      }
      const uint64_t begin = std::max(first, row * columns);
      const uint64_t end = std::min(first + count, (row + 1) * columns);
      for (uint64_t i = begin; i < end; ++i) {
        PREPACK_TRY(
            Put(piece.piece.Row(i - first), std::span(&weights[i % columns], 1), piece.plus));
      }
    }
    return {};
  }

  Status Put(uint64_t element, std::span<const float> weights, float plus) {
    for (uint64_t i = 0; i < weights.size(); i += unit_) {
      const uint64_t place = (element + i) / unit_;
      if (place >= seen_.size() || seen_[place]) return Twice();
      seen_[place] = true;
    }
    const uint64_t bytes = weights.size() * element_;
    if (buffer_.empty()) {
      row_.resize(bytes);
      Store(weights, plus, row_.data());
      return file_.WriteAt(offset_ + element * element_, row_);
    }
    Store(weights, plus, &buffer_[element * element_]);
    return {};
  }

  void Store(std::span<const float> weights, float plus, std::byte* out) {
    for (size_t i = 0; i < weights.size(); ++i) {
      const float weight = weights[i] - plus;
      const uint16_t half = dtype_ == DType::kBF16 ? F32ToBF16(weight) : F32ToF16(weight);
      float stored = weight;
      if (dtype_ == DType::kBF16) stored = BF16ToF32(half);
      if (dtype_ == DType::kF16) stored = F16ToF32(half);
      if (dtype_ == DType::kF32) {
        std::memcpy(out + i * sizeof weight, &weight, sizeof weight);
      } else {
        std::memcpy(out + i * sizeof half, &half, sizeof half);
      }
      wrong_ += stored + plus == weights[i] ? 0U : 1U;
    }
  }

  const Model& model_;
  const Restored& restored_;
  const DType dtype_;
  const uint64_t element_;  // bytes
  File& file_;
  const uint64_t offset_;
  uint64_t unit_ = 1;  // elements that come together
  std::vector<bool> seen_;
  std::vector<std::byte> buffer_;
  std::vector<std::byte> row_;
  uint64_t wrong_ = 0;
};

}  // namespace

Result<uint64_t> WriteRestored(const Model& model, const Restored& restored, DType dtype,
                               File& file, uint64_t offset) {
  return Restoring(model, restored, dtype, file, offset).Run();
}

}  // namespace prepack::gguf
