// Matches modules and tensors of two checkpoints by name and compares them in parallel; the report
// keeps the order of the names.

#include "prepack/diff/diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/parallel.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/formats/format.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/gguf/model.h"
#include "prepack/io/memory_limit.h"
#include "prepack/io/output_folder.h"
#include "prepack/model/panel.h"
#include "prepack/packed/packed_model.h"

namespace prepack {
namespace {

// A multiple of every element size.
constexpr uint64_t kChunk = uint64_t{1} << 20;

bool IsFloat(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

Result<TensorDifferences> CompareFloats(const Checkpoint& a, const StoredTensor& tensor_a,
                                        const Checkpoint& b, const StoredTensor& tensor_b) {
  TensorDifferences differences;
  const uint64_t count = tensor_a.bytes * 8 / DTypeBits(tensor_a.dtype);
  std::vector<float> left;
  std::vector<float> right;
  for (uint64_t first = 0; first < count; first += kChunk) {
    if (CancellationRequested()) return Interrupted(tensor_a.name);
    left.resize(static_cast<size_t>(std::min<uint64_t>(kChunk, count - first)));
    right.resize(left.size());
    PREPACK_TRY(ReadFloats(a, tensor_a, first, left));
    PREPACK_TRY(ReadFloats(b, tensor_b, first, right));
    for (size_t i = 0; i < left.size(); ++i) {
      if (left[i] == right[i] || (std::isnan(left[i]) && std::isnan(right[i]))) continue;
      const double distance =
          std::abs(static_cast<double>(left[i]) - static_cast<double>(right[i]));
      ++differences.elements;
      differences.max_absolute =
          std::max(differences.max_absolute,
                   std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance);
    }
  }
  if (differences.elements != 0) differences.verdict = DiffVerdict::kDifferent;
  return differences;
}

Result<TensorDifferences> CompareBytes(const Checkpoint& a, const StoredTensor& tensor_a,
                                       const Checkpoint& b, const StoredTensor& tensor_b) {
  TensorDifferences differences;
  const size_t each = DTypeBits(tensor_a.dtype) / 8;  // 0: less than a byte
  std::vector<std::byte> left;
  std::vector<std::byte> right;
  for (uint64_t offset = 0; offset < tensor_a.bytes; offset += kChunk) {
    if (CancellationRequested()) return Interrupted(tensor_a.name);
    left.resize(static_cast<size_t>(std::min(kChunk, tensor_a.bytes - offset)));
    right.resize(left.size());
    PREPACK_TRY(a.Read(tensor_a, offset, left));
    PREPACK_TRY(b.Read(tensor_b, offset, right));
    if (SameBytes(left, right)) continue;
    differences.verdict = DiffVerdict::kDifferent;
    if (each == 0) continue;
    for (size_t i = 0; i + each <= left.size(); i += each) {
      if (std::memcmp(left.data() + i, right.data() + i, each) != 0) ++differences.elements;
    }
  }
  return differences;
}

}  // namespace

Result<TensorDifferences> CompareTensors(const Checkpoint& a, const StoredTensor& tensor_a,
                                         const Checkpoint& b, const StoredTensor& tensor_b) {
  TensorDifferences differences;
  if (tensor_a.shape != tensor_b.shape) {
    differences.verdict = DiffVerdict::kShapeDiffers;
    return differences;
  }
  if (IsFloat(tensor_a.dtype) && IsFloat(tensor_b.dtype)) {
    Result<TensorDifferences> bytes = TensorDifferences{};
    if (tensor_a.dtype == tensor_b.dtype) {
      bytes = CompareBytes(a, tensor_a, b, tensor_b);
      if (!bytes.ok() || bytes->verdict == DiffVerdict::kIdentical) return bytes;
    }
    Result<TensorDifferences> values = CompareFloats(a, tensor_a, b, tensor_b);
    // Zeros with another sign and NaNs with another payload are different bytes all the same.
    if (values.ok() && tensor_a.dtype == tensor_b.dtype) {
      values->verdict = DiffVerdict::kDifferent;
      values->elements = bytes->elements;
    }
    return values;
  }
  if (tensor_a.dtype != tensor_b.dtype) {
    differences.verdict = DiffVerdict::kDifferent;
    return differences;
  }
  return CompareBytes(a, tensor_a, b, tensor_b);
}

namespace {

// Buffers of one thread: 1 Mi floats of each side, and their bytes as stored.
constexpr uint64_t kTensorMemory = uint64_t{16} << 20;

// One side. The model refers to the checkpoint, which must not move.
struct Side {
  std::unique_ptr<Checkpoint> checkpoint;
  QuantizedModel model;
  std::vector<bool> used;  // by tensor: does it belong to a module?

  bool IsUsed(const StoredTensor& tensor) const { return used[NumberOf(*checkpoint, tensor)]; }
  const StoredTensor* FloatWeight(const std::string& module) const {
    const StoredTensor* tensor = checkpoint->Find(module + ".weight");
    return tensor != nullptr && IsFloatMatrix(*tensor) ? tensor : nullptr;
  }
  std::optional<Weights> Find(const std::string& module) const {
    if (const QuantizedLinear* linear = model.Find(module)) return Weights(*linear);
    if (const StoredTensor* tensor = FloatWeight(module)) return Weights(*checkpoint, *tensor);
    return std::nullopt;
  }
};

Result<Side> OpenSide(const std::filesystem::path& path, const std::filesystem::path& other,
                      const DiffOptions& options) {
  std::error_code ignored;
  if (std::filesystem::exists(path / kManifestName, ignored)) {
    return Unsupported(path.string(), "diff does not compare packed folders")
        .Hint("`prepack verify OUT --source SRC` compares it with the checkpoint it was made from")
        .Id("already-packed");
  }
  GgufSource source;
  if (gguf::IsGguf(path)) {
    source = options.gguf;
    source.look = true;
    source.compare = true;
    if (!source.llama_cpp.empty() && source.like.empty()) source.like = other;
  }
  PREPACK_TRY_ASSIGN(Checkpoint checkpoint, OpenSource(path, source));
  Side side;
  side.checkpoint = std::make_unique<Checkpoint>(std::move(checkpoint));
  Result<QuantizedModel> model = ReadSourceModel(*side.checkpoint, options.accepted);
  // A checkpoint that declares no quantization is a float one.
  if (!model.ok() && model.status().id() != "config-missing") return model.status();
  if (model.ok()) side.model = *std::move(model);
  side.used = TensorsInModules(*side.checkpoint, side.model);
  return side;
}

bool BelongsTo(std::string_view tensor, std::string_view module) {
  return tensor.size() > module.size() && tensor.starts_with(module) &&
         tensor[module.size()] == '.';
}

DiffSide Describe(const Weights& weights) {
  return {.description = weights.Describe(), .shape = {weights.n(), weights.k()}};
}

DiffSide Describe(const StoredTensor& tensor) {
  return {.description = std::string(DTypeName(tensor.dtype)), .shape = tensor.shape};
}

DiffVerdict VerdictOfHeaders(const StoredTensor& a, const StoredTensor& b) {
  if (a.shape != b.shape) return DiffVerdict::kShapeDiffers;
  const bool comparable = a.dtype == b.dtype || (IsFloat(a.dtype) && IsFloat(b.dtype));
  return comparable ? DiffVerdict::kNotCompared : DiffVerdict::kDifferent;
}

class Differ {
 public:
  Differ(const DiffOptions& options, Side a, Side b)
      : options_(options), a_(std::move(a)), b_(std::move(b)) {}

  Result<DiffReport> Run(Progress& progress) {
    report_.a = options_.a.string();
    report_.b = options_.b.string();
    report_.format_a = a_.model.format;
    report_.format_b = b_.model.format;
    MatchModules();
    MatchTensors();
    if (report_.modules.empty() && report_.tensors.empty()) return NothingToCompare();
    PREPACK_TRY_ASSIGN(const unsigned threads,
                       ThreadsWithin(Need(), options_.jobs, options_.memory_limit, "compared"));
    threads_ = threads;
    progress.Begin("comparing", WorkBytes());
    PREPACK_TRY(CompareModules(progress));
    if (!options_.headers) PREPACK_TRY(CompareAllTensors(progress));
    return std::move(report_);
  }

 private:
  void MatchModules() {
    std::set<std::string> names;
    for (const Side* side : {&a_, &b_}) {
      for (const auto& linear : side->model.modules) {
        if (options_.module.empty() || linear->module() == options_.module) {
          names.emplace(linear->module());
        }
      }
    }
    for (const std::string& name : names) {
      const std::optional<Weights> a = a_.Find(name);
      const std::optional<Weights> b = b_.Find(name);
      ModuleDiff diff;
      diff.module = name;
      if (a) diff.a = Describe(*a);
      if (b) diff.b = Describe(*b);
      if (!a || !b) {
        diff.verdict = a ? DiffVerdict::kOnlyInA : DiffVerdict::kOnlyInB;
      } else if (diff.a->shape != diff.b->shape) {
        diff.verdict = DiffVerdict::kShapeDiffers;
      } else if (options_.headers) {
        diff.verdict = DiffVerdict::kNotCompared;
      } else {
        AppendStripes(comparisons_.size(), a->n(), a->k(), stripes_);
        comparisons_.emplace_back(*a, *b);
        compared_.push_back(report_.modules.size());
      }
      for (Side* side : {&a_, &b_}) {
        if (side->model.Find(name) != nullptr) continue;
        if (const StoredTensor* tensor = side->FloatWeight(name)) {
          side->used[NumberOf(*side->checkpoint, *tensor)] = true;
        }
      }
      report_.modules.push_back(std::move(diff));
    }
  }

  void MatchTensors() {
    std::set<std::string_view> names;
    for (const Side* side : {&a_, &b_}) {
      for (const StoredTensor& tensor : side->checkpoint->tensors()) {
        const bool wanted = options_.module.empty() || BelongsTo(tensor.name, options_.module);
        if (wanted && !side->IsUsed(tensor)) names.insert(tensor.name);
      }
    }
    for (const std::string_view name : names) {
      const StoredTensor* a = Unused(a_, name);
      const StoredTensor* b = Unused(b_, name);
      TensorDiff diff;
      diff.tensor = std::string(name);
      if (a != nullptr) diff.a = Describe(*a);
      if (b != nullptr) diff.b = Describe(*b);
      if (a == nullptr || b == nullptr) {
        diff.differences.verdict = a != nullptr ? DiffVerdict::kOnlyInA : DiffVerdict::kOnlyInB;
      } else if (options_.headers) {
        diff.differences.verdict = VerdictOfHeaders(*a, *b);
      }
      report_.tensors.push_back(std::move(diff));
    }
  }

  static const StoredTensor* Unused(const Side& side, std::string_view name) {
    const StoredTensor* tensor = side.checkpoint->Find(name);
    return tensor == nullptr || side.IsUsed(*tensor) ? nullptr : tensor;
  }

  Status NothingToCompare() const {
    if (options_.module.empty()) return Usage(options_.a.string(), "there is nothing to compare");
    std::vector<std::string> names;
    for (const Side* side : {&a_, &b_}) {
      for (const auto& linear : side->model.modules) names.emplace_back(linear->module());
    }
    return Usage("--module", "no quantized module has this name")
        .Found(options_.module)
        .Hint(DidYouMean(options_.module, names));
  }

  uint64_t WorkBytes() const {
    uint64_t total = 0;
    for (const ModuleComparison& comparison : comparisons_) {
      total += comparison.a().bytes() + comparison.b().bytes();
    }
    for (const TensorDiff& tensor : report_.tensors) {
      if (tensor.a && tensor.b) total += a_.checkpoint->Find(tensor.tensor)->bytes;
    }
    return total;
  }

  MemoryNeed Need() const {
    MemoryNeed need{.shared = stripes_.size() * (sizeof(WeightDifferences) +
                                                 (kWorstElements + 1) * sizeof(WorstElement)),
                    .per_thread = kTensorMemory};
    for (const ModuleComparison& comparison : comparisons_) {
      const uint64_t rows = std::min(StripePanelRows(comparison.a().k()), comparison.a().n());
      need.per_thread = std::max(need.per_thread, comparison.MemoryOf(rows));
    }
    return need;
  }

  Status CompareModules(Progress& progress) {
    std::vector<DiffBuffers> buffers(threads_);
    std::vector<WeightDifferences> results(stripes_.size());
    PREPACK_TRY(ParallelFor(stripes_.size(), threads_, [&](size_t index, unsigned worker) {
      const RowStripe& stripe = stripes_[index];
      const ModuleComparison& comparison = comparisons_[stripe.matrix];
      progress.BeginItem(report_.modules[compared_[stripe.matrix]].module);
      const uint64_t panel = StripePanelRows(comparison.a().k());
      for (uint64_t row = 0; row < stripe.rows; row += panel) {
        if (CancellationRequested()) return Interrupted(options_.a.string());
        PREPACK_TRY(comparison.Compare(stripe.n0 + row, std::min(panel, stripe.rows - row),
                                       buffers[worker], results[index]));
      }
      progress.Add((comparison.a().bytes() + comparison.b().bytes()) * stripe.rows /
                   comparison.a().n());
      return Status();
    }));
    for (size_t i = 0; i < stripes_.size(); ++i) {
      report_.modules[compared_[stripes_[i].matrix]].differences.Merge(results[i]);
    }
    for (size_t i = 0; i < comparisons_.size(); ++i) {
      ModuleDiff& diff = report_.modules[compared_[i]];
      diff.verdict = diff.differences.Verdict();
      PREPACK_TRY(comparisons_[i].Explain(diff.differences.worst));
    }
    return {};
  }

  Status CompareAllTensors(Progress& progress) {
    return ParallelFor(report_.tensors.size(), threads_, [&](size_t index, unsigned /*worker*/) {
      TensorDiff& diff = report_.tensors[index];
      if (!diff.a || !diff.b) return Status();
      const StoredTensor& tensor = *a_.checkpoint->Find(diff.tensor);
      progress.BeginItem(tensor.name);
      PREPACK_TRY_ASSIGN(TensorDifferences compared,
                         CompareTensors(*a_.checkpoint, tensor, *b_.checkpoint,
                                        *b_.checkpoint->Find(diff.tensor)));
      diff.differences = compared;
      progress.Add(tensor.bytes);
      return Status();
    });
  }

  const DiffOptions& options_;
  Side a_;
  Side b_;
  unsigned threads_ = 1;
  DiffReport report_;
  std::vector<ModuleComparison> comparisons_;
  std::vector<size_t> compared_;  // by comparison: index into report_.modules
  std::vector<RowStripe> stripes_;
};

}  // namespace

bool DiffReport::Same() const {
  return std::ranges::all_of(modules, [](const auto& diff) { return IsSame(diff.verdict); }) &&
         std::ranges::all_of(tensors,
                             [](const auto& diff) { return IsSame(diff.differences.verdict); });
}

Result<DiffReport> Diff(const DiffOptions& options, Progress& progress) {
  PREPACK_TRY_ASSIGN(Side a, OpenSide(options.a, options.b, options));
  PREPACK_TRY_ASSIGN(Side b, OpenSide(options.b, options.a, options));
  return Differ(options, std::move(a), std::move(b)).Run(progress);
}

}  // namespace prepack
