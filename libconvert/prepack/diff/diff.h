#pragma once

// Tensors that belong to no quantized module: embeddings, norms, biases. Tensors of the same dtype
// are identical if their bytes are; floats of different dtypes, if their values are.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/safetensors.h"
#include "prepack/convert/source.h"
#include "prepack/diff/module_diff.h"
#include "prepack/formats/accepted.h"

namespace prepack {

struct TensorDifferences {
  DiffVerdict verdict = DiffVerdict::kIdentical;
  uint64_t elements = 0;    // that differ; 0 where elements are not compared (sub-byte dtypes)
  double max_absolute = 0;  // of floats
};

// Both must exist.
Result<TensorDifferences> CompareTensors(const Checkpoint& a, const StoredTensor& tensor_a,
                                         const Checkpoint& b, const StoredTensor& tensor_b);

// Two checkpoints by meaning, whatever their formats. Modules that are quantized on one side at
// least are matched by name and compared as weights (module_diff.h); on the other side they may be
// a float tensor MODULE.weight. All other tensors are compared as they are. A side
// that is not quantized at all is fine.

struct DiffOptions {
  std::filesystem::path a;
  std::filesystem::path b;
  bool headers = false;       // compare names, shapes and dtypes only; weights are not read
  std::string module;         // empty: all; else only this module, and the tensors MODULE.*
  unsigned jobs = 0;          // threads; 0: one per CPU
  uint64_t memory_limit = 0;  // of anonymous memory, in bytes; 0: none
  // Findings on either side that end nothing.
  AcceptedFindings accepted = {};
  // Of sides that are GGUF files. Without `like`, the other side is that.
  GgufSource gguf = {};
};

// A module or tensor on one side; absent when it is only on the other.
struct DiffSide {
  std::string description;  // "w4a16 group 128 symmetric", "BF16"
  TensorShape shape;
};

struct ModuleDiff {
  std::string module;
  DiffVerdict verdict = DiffVerdict::kIdentical;
  std::optional<DiffSide> a;
  std::optional<DiffSide> b;
  WeightDifferences differences;  // all zero unless both sides have the same shape
};

struct TensorDiff {
  std::string tensor;
  std::optional<DiffSide> a;
  std::optional<DiffSide> b;
  TensorDifferences differences;
};

struct DiffReport {
  std::string a;
  std::string b;
  std::string format_a;  // empty: not quantized
  std::string format_b;
  std::vector<ModuleDiff> modules;  // ascending by name
  std::vector<TensorDiff> tensors;  // ascending by name

  // Everything is identical or equal.
  bool Same() const;
};

// kUnsupported for a packed folder; errors of opening and reading either side as they come. A
// module that does not exist, and two checkpoints with nothing to compare, are kUsage.
Result<DiffReport> Diff(const DiffOptions& options, Progress& progress);

// What the terminal and HTML say about a report, as plain text, so that they cannot disagree. Names
// in it come from files: the code that prints it must escape it.

// "5 identical, 2 different"; "none".
std::string ModuleVerdicts(const DiffReport& report);
std::string TensorVerdicts(const DiffReport& report);

// "models/awq (awq)", "models/float (not quantized)"
std::string CheckpointText(const std::string& path, const std::string& format);
// "w4a16 group 128 symmetric [4096, 14336]"; "-" for a side that lacks it.
std::string SideText(const std::optional<DiffSide>& side);
// "0", "0.0123"
std::string DifferenceText(double difference);
// "38.1"; "-" without noise, or without signal.
std::string SqnrText(const WeightDifferences& differences);

// The report as one self-contained page (report/page.h): verdicts, the SQNR of every module of B
// against A, and all modules and tensors.
std::string DiffHtml(const DiffReport& report);

}  // namespace prepack
