#pragma once

// Level 2: is the folder still the model? Every part of every packed module is unpacked and
// compared with the source as the readers deliver it: codes and zero points must be equal, scales
// may differ only by the rounding that the manifest names. Tensors that pass through are compared
// byte for byte, and nothing of the source may be missing.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "prepack/base/hash.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/measure/measurements.h"
#include "prepack/packed/folder.h"
#include "prepack/packed/source_identity.h"
#include "prepack/verify/report/report.h"

namespace prepack {

// A tensor that passed through, compared with the source.
struct PassedTensor {
  std::string problem;                 // empty: equal
  std::optional<Hash128> source_hash;  // of all bytes of the source's; none: not read to the end
};

// rms(W) · √K of some output channels of a module; 0: nothing to judge.
struct WeightSize {
  double value = 0;
};
using WeightSizes = std::map<const QuantizedLinear*, double>;

// The steps are called in the order in which they are declared.
class ExactnessCheck {
 public:
  // All arguments must outlive it. With a sample, only its modules are unpacked, and only their
  // source tensors are read; notes say what was not looked at.
  ExactnessCheck(const PackedFolder& folder, const Checkpoint& source, const QuantizedModel& model,
                 const ModuleSample* sample, Progress& progress);

  // Before all else: this is a part of a check, or takes what all parts have measured.
  void Share(Measurements& measured) { measured_ = &measured; }

  // How much of the source it reads, to be compared and to be hashed.
  uint64_t bytes() const;

  // First: compares what the manifest says of the modules with what the source has in their place.
  // Reads no weights. May be called once more if the manifest has changed. kMalformed or
  // kUnsupported when a module cannot be opened.
  Status CompareRecords();
  // Does the source hold every module of the sample, with the shape and the scheme that it was
  // packed in?
  bool SourceHoldsModules() const;

  // Then, from any thread: one module, by its number in the manifest, on so many threads; or one
  // of the manifest's tensors that pass through. What is read of the source is hashed as well,
  // while it is in the page cache.
  Status CompareModule(size_t index, unsigned threads);
  // What of the source the levels are about to read of a module is mapped at once.
  void MapSource(size_t index) const;
  Status CompareTensor(size_t index);

  // Of what has been compared so far; nothing: there is none.
  std::optional<Problem> FirstProblem() const;

  // Of the modules that were compared: see NoteWeightSizes.
  WeightSizes weight_sizes() const;

  // In the end: what is not of a single module. Sets `exact`, `max_scale_difference` and the states
  // of the modules in `figures`.
  Result<LevelResult> Finish(unsigned threads, ModuleFigures& figures);

 private:
  // A packed module and what has been found of it.
  struct Module {
    const std::string* name = nullptr;
    const ModuleRecord* record = nullptr;
    const QuantizedLinear* linear = nullptr;
    std::vector<const StoredTensor*> hashed_with_it;  // source tensors
    bool comparable = false;                          // its records agree
    std::optional<bool> exact;
    std::optional<double> max_scale_difference;
    std::optional<uint64_t> rounded_scales;
    std::optional<double> weight_size;
    LevelResult result = {.state = LevelState::kPassed};
  };
  // A tensor that passes through.
  struct Tensor {
    std::string problem;  // empty: as in the source
    bool sets_hash = false;
  };

  Status CompareRecord(Module& module);
  void AssignSourceTensors();
  Status HashSource(const Module& module);
  Result<PassedTensor> CompareBytes(const TensorRecord& record, const StoredTensor& stored);

  const PackedFolder& folder_;
  const Checkpoint& source_;
  const QuantizedModel& model_;
  const ModuleSample* sample_;
  Progress& progress_;
  Measurements alone_;
  Measurements* measured_ = &alone_;
  std::vector<Module> modules_;  // in the order of the manifest
  std::vector<Tensor> tensors_;
  TensorHashes hashes_;  // of the source
};

// Exactness and the GEMM level compare what is packed with what the quantization config says of the
// source, so a config that both misread, or that is wrong itself, passes both. The size of the
// weights does not depend on it: notes modules whose weights are far too large or small for any
// working model (check/judgement.h), by a few output channels of each. Errors are those of
// the readers.
// `known`: sizes that were measured with the modules.
Status NoteWeightSizes(const QuantizedModel& model, const WeightSizes& known,
                       Measurements& measured, LevelResult& result);
Result<WeightSize> MeasureWeightSize(const QuantizedLinear& linear, Measurements& measured);

// What exactness asks beyond the bytes of modules and tensors: the manifest must name this source,
// by the hashes of its tensors, and the roundings that were made; nothing of the source may be
// missing; config.json and side files must be the source's. `hashes` holds those of source tensors
// that are known already. With a sample only the source tensors of its modules are hashed, and
// notes say so.
Status CheckProvenance(const PackedFolder& folder, const Checkpoint& source,
                       const QuantizedModel& model, const ModuleSample* sample,
                       Measurements& measured, unsigned threads, Progress& progress,
                       TensorHashes& hashes, LevelResult& result);

}  // namespace prepack
