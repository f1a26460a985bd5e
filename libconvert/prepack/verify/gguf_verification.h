#pragma once

// A run of all levels over a GGUF file, at once or while it is made. See gguf.h.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/json.h"
#include "prepack/convert/gguf/manifest.h"
#include "prepack/convert/gguf/sources.h"
#include "prepack/formats/format.h"
#include "prepack/gguf/model.h"
#include "prepack/io/memory_limit.h"
#include "prepack/verify/gguf_products.h"
#include "prepack/verify/gguf_weights.h"
#include "prepack/verify/judgement.h"
#include "prepack/verify/report/report.h"
#include "prepack/verify/second/decoder.h"
#include "prepack/verify/verify.h"

namespace prepack {

// What was found in some rows of a tensor.
struct GgufFound {
  WeightCounts exactness;  // by the reader's decoder
  WeightCounts gemm;       // by the model of the product
  GgufSums sums;

  void Add(GgufFound other);
};

// The same as JSON, of rows whose weights are all right.
Json GgufFoundJson(const GgufFound& found);
Result<GgufFound> ReadGgufFound(const std::string& json, const std::string& where);

// Rows of a tensor.
struct GgufRange {
  std::string tensor;
  uint64_t first = 0;
  uint64_t rows = 0;
};

class GgufVerification {
 public:
  // The arguments must outlive it. Records of the manifest may be completed until they are looked
  // at.
  GgufVerification(const VerifyOptions& options, const gguf::Model& model,
                   const gguf::Manifest& manifest, Progress& progress)
      : options_(options),
        model_(model),
        manifest_(manifest),
        progress_(progress),
        inputs_(options.memory_limit == 0 ? GgufInputs::kMostKept : 0) {}

  // First: what can fail because of the command line.
  Status Prepare();
  // Opens the source, if it is where it should be.
  Status OpenSource();
  bool has_source() const { return source_ != nullptr; }
  // See Checkpoint::Reopen.
  Status ReopenSource(size_t file);

  // Of these rows, each of a tensor that has some; nothing for others. Adds their bytes to the
  // progress.
  Result<std::vector<GgufFound>> Compare(std::span<const GgufRange> ranges);
  // Counts what was found of rows, here or by an earlier run.
  void Count(const GgufRange& range, GgufFound found);
  // Of a tensor, by what has been counted so far.
  std::optional<Problem> ProblemOf(const std::string& tensor) const;
  // All rows of all tensors.
  Status CompareAll();

  // When all has been counted, and the manifest is complete.
  Result<VerifyReport> Finish();

 private:
  // What a tensor with rows of the source is compared by.
  struct Compared {
    std::unique_ptr<GgufRows> rows;
    std::optional<GgufProducts> products;  // none: it is not multiplied
    GgufFound found;
    Status unusable;  // not OK: its rows are not what the manifest says
  };
  // What is compared with: none of it moves while it is there.
  struct Source {
    explicit Source(Checkpoint opened) : checkpoint(std::move(opened)) {}

    Checkpoint checkpoint;
    QuantizedModel model;
    gguf::Sources sources;
    std::optional<SecondDecoder> decoder;
    std::optional<GgufTruth> truth;
  };
  struct Stripe {
    const Compared* tensor = nullptr;
    size_t range = 0;
    uint64_t first = 0;
    uint64_t rows = 0;
  };
  struct Scratch {
    GgufStripe stripe;
    std::vector<float> row;
    GgufScratch products;
  };

  LevelResult& level(Level level) { return report_.level(level); }
  bool Runs(Level level) const;
  void Begin();
  Status ReadBars();
  MemoryNeed Need() const;
  Status CheckIntegrity();
  std::optional<std::filesystem::path> SourcePath();
  Compared* Find(const std::string& name);
  Status CompareStripe(const Stripe& stripe, Scratch& scratch, GgufFound& found) const;
  void Judge(const std::string& name, const Compared& tensor);
  void JudgeWeights(const std::string& name, const WeightCounts& counts, LevelResult& result);
  void JudgeSums(const std::string& name, const Compared& tensor, ModuleVerification& module,
                 LevelResult& result) const;
  void ConcludeProducts();
  void NoteLeftOut();

  const VerifyOptions& options_;
  const gguf::Model& model_;
  const gguf::Manifest& manifest_;
  Progress& progress_;
  unsigned threads_ = 1;
  std::optional<SqnrBars> bars_;
  GgufInputCache inputs_;
  std::unique_ptr<Source> source_;  // null: it is not there
  std::map<std::string, Compared> compared_;
  VerifyReport report_;
  ModuleFigures figures_;
};

}  // namespace prepack
