#include "prepack/check/plain_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/parallel.h"
#include "prepack/base/progress.h"
#include "prepack/check/measured.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

constexpr uint64_t kPieceValues = uint64_t{1} << 18;

bool IsComparable(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

struct ComparedTensor {
  const StoredTensor* tensor = nullptr;
  const StoredTensor* original = nullptr;
  uint64_t values = 0;
  uint64_t different = 0;  // beyond the tolerance
};

struct ComparedPiece {
  size_t pair = 0;
  uint64_t first = 0;
  uint64_t count = 0;
  uint64_t different = 0;
};

class TensorComparison {
 public:
  TensorComparison(const Checkpoint& checkpoint, const QuantizedModel& model,
                   const Checkpoint& baseline, Measurements& measured)
      : checkpoint_(checkpoint), baseline_(baseline), measured_(measured) {
    const std::vector<bool> quantized = TensorsInModules(checkpoint, model);
    for (const StoredTensor& tensor : checkpoint.tensors()) {
      if (quantized[NumberOf(checkpoint, tensor)] || !IsComparable(tensor.dtype)) continue;
      // A part of a module that the reader does not name, such as a scale of activations.
      if (!tensor.name.ends_with(".bias") && model.Find(ModuleOf(tensor.name)) != nullptr) continue;
      const StoredTensor* original = baseline.Find(tensor.name);
      Match(tensor, original != nullptr ? original : TiedEmbedding(baseline, tensor.name));
    }
    for (const StoredTensor& original : baseline.tensors()) {
      const bool known = checkpoint.Find(original.name) != nullptr ||
                         model.Find(ModuleOf(original.name)) != nullptr;
      if (known) continue;
      // A head that the quantizer left out because it is tied: the embedding must equal it.
      if (const StoredTensor* embedding = TiedEmbedding(checkpoint, original.name)) {
        Match(*embedding, &original);
      } else {
        missing_.Add("baseline-missing", original.name,
                     "the baseline has this tensor, but the checkpoint has no tensor of this name");
      }
    }
  }

  uint64_t total() const {
    uint64_t values = 0;
    for (const ComparedPiece& piece : pieces_) values += piece.count;
    return values;
  }

  Status Read(unsigned threads, Progress& progress) {
    std::vector<std::pair<std::vector<float>, std::vector<float>>> buffers(threads);
    return ParallelFor(pieces_.size(), threads, [&](size_t index, unsigned worker) {
      ComparedPiece& piece = pieces_[index];
      const ComparedTensor& pair = pairs_[piece.pair];
      if (CancellationRequested()) return Interrupted(pair.tensor->name);
      progress.BeginItem(pair.tensor->name);
      auto& [values, originals] = buffers[worker];
      values.resize(piece.count);
      originals.resize(piece.count);
      Status status = ReadFloats(checkpoint_, *pair.tensor, piece.first, values);
      if (status.ok()) status = ReadFloats(baseline_, *pair.original, piece.first, originals);
      if (!status.ok()) return status;
      for (uint64_t i = 0; i < piece.count; ++i) {
        const double a = values[i];
        const double b = originals[i];
        const double allowed = kTensorTolerance * std::max(std::abs(a), std::abs(b));
        piece.different += std::abs(a - b) <= allowed ? 0U : 1U;
      }
      progress.Add(piece.count);
      return status;
    });
  }

  Status Report(std::vector<Finding>& findings) {
    for (const ComparedPiece& piece : pieces_) pairs_[piece.pair].different += piece.different;
    for (ComparedTensor& pair : pairs_) {
      // A tied tensor may be compared with two.
      const std::string name = fmt::format("{} {}", pair.tensor->name, pair.original->name);
      const std::string unit = UnitOfTensor(pair.tensor->name);
      PREPACK_TRY_ASSIGN(
          const DifferentValues values,
          measured_.Of<DifferentValues>({.kind = "baseline", .name = name, .unit = unit},
                                        [&] { return Result(DifferentValues{pair.different}); }));
      pair.different = values.count;
    }
    for (Finding& finding : missing_.Take()) findings.push_back(std::move(finding));
    for (const ComparedTensor& pair : pairs_) {
      if (pair.different == 0) continue;
      findings.push_back(MakeFinding(
          "baseline-tensor-differs", checkpoint_.Where(*pair.tensor),
          fmt::format("{} of {} values differ from the baseline", pair.different, pair.values)));
    }
    return {};
  }

 private:
  void Match(const StoredTensor& tensor, const StoredTensor* original) {
    if (original == nullptr || !IsComparable(original->dtype)) {
      missing_.Add("baseline-missing", tensor.name,
                   "the baseline has no floating-point tensor of this name");
      return;
    }
    if (!std::ranges::equal(tensor.shape, original->shape)) {
      missing_.Add("baseline-shape", tensor.name,
                   fmt::format("{}, but {} in the baseline", ShowShape(tensor.shape),
                               ShowShape(original->shape)));
      return;
    }
    const uint64_t values = tensor.bytes * 8 / DTypeBits(tensor.dtype);
    const uint64_t read = measured_.Measures(UnitOfTensor(tensor.name)) ? values : 0;
    for (uint64_t first = 0; first < read; first += kPieceValues) {
      pieces_.push_back(
          {.pair = pairs_.size(), .first = first, .count = std::min(kPieceValues, values - first)});
    }
    pairs_.push_back({.tensor = &tensor, .original = original, .values = values});
  }

  const Checkpoint& checkpoint_;
  const Checkpoint& baseline_;
  Measurements& measured_;
  std::vector<ComparedTensor> pairs_;
  std::vector<ComparedPiece> pieces_;
  FindingTally missing_;
};

}  // namespace

Status CompareOtherTensors(const Checkpoint& checkpoint, const QuantizedModel& model,
                           const Checkpoint& baseline, Measurements& measured, unsigned threads,
                           Progress& progress, std::vector<Finding>& findings) {
  TensorComparison comparison(checkpoint, model, baseline, measured);
  progress.Begin("comparing other tensors", comparison.total());
  PREPACK_TRY(comparison.Read(threads, progress));
  return comparison.Report(findings);
}

}  // namespace prepack
