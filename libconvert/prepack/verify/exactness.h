#ifndef PREPACK_VERIFY_EXACTNESS_H_
#define PREPACK_VERIFY_EXACTNESS_H_

// One packed module against its source: every part of it.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/model/quantized_linear.h"
#include "prepack/packed/folder.h"
#include "prepack/packed/source_identity.h"
#include "prepack/verify/report/report.h"

namespace prepack {

// Panels are merged in any order, so the first difference is that with the smallest (n, k),
// whatever the timing.
struct ModuleDifferences {
  uint64_t codes = 0;
  uint64_t zero_points = 0;
  uint64_t scales = 0;
  uint64_t extra_tiles = 0;  // in which sums or padding beside the codes are wrong
  uint64_t weight_sums = 0;
  std::vector<std::string> parts;                                       // small parts that differ
  std::pair<uint64_t, uint64_t> first_code = {UINT64_MAX, UINT64_MAX};  // n, k
  unsigned first_found = 0;
  unsigned first_expected = 0;
  double max_scale_difference = 0;
  // No difference, but what the manifest is to say: scales that the layout gives another value.
  uint64_t rounded_scales = 0;

  bool none() const;
  void Merge(const ModuleDifferences& other);
  // A sentence that says what differs, and where first.
  std::string Describe() const;
};

// What one thread of CompareModule allocates for such a module, in bytes; at most.
uint64_t MemoryOfComparison(const PackedModule& packed, const QuantizedLinear& weights);

// `weights` is what was packed: `linear` itself, or the module dequantized. Shapes and schemes must
// have been found equal.
Result<ModuleDifferences> CompareModule(const PackedModule& packed, const Checkpoint& source,
                                        const QuantizedLinear& linear,
                                        const QuantizedLinear& weights, unsigned threads,
                                        Progress& progress);

// Level 2: is the folder still the model? Every part of every packed module is unpacked and
// compared with the source as the readers deliver it: codes and zero points must be equal, scales
// may differ only by the rounding that the manifest names. Tensors that pass through are compared
// byte for byte, and nothing of the source may be missing. With a sample, only its modules are
// unpacked, and only their source tensors are read; notes say what was not looked at. Sets `exact`,
// `max_scale_difference` and the states of the modules in `figures`.
Result<LevelResult> CheckExactness(const PackedFolder& folder, const Checkpoint& source,
                                   const QuantizedModel& model, const ModuleSample* sample,
                                   unsigned threads, Progress& progress, ModuleFigures& figures);

// Exactness and the GEMM level compare what is packed with what the quantization config says of the
// source, so a config that both misread, or that is wrong itself, passes both. The size of the
// weights does not depend on it: notes modules whose weights are far too large or small for any
// working model (check/judgement.h), by a few output channels of each. Errors are those of
// the readers.
Status NoteWeightSizes(const QuantizedModel& model, LevelResult& result);

// What exactness asks beyond the bytes of modules and tensors: the manifest must name this source,
// by the hashes of its tensors, and the roundings that were made; nothing of the source may be
// missing; config.json and side files must be the source's. `hashes` holds those of source tensors
// that are known already. With a sample only the source tensors of its modules are hashed, and
// notes say so.
Status CheckProvenance(const PackedFolder& folder, const Checkpoint& source,
                       const QuantizedModel& model, const ModuleSample* sample, unsigned threads,
                       Progress& progress, TensorHashes& hashes, LevelResult& result);

}  // namespace prepack

#endif  // PREPACK_VERIFY_EXACTNESS_H_
