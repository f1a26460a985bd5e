#pragma once

// What `verify` measures by reading data, as the report of a part holds it
// (measure/measurements.h).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/measure/measurements.h"
#include "prepack/packed/folder.h"
#include "prepack/packed/output_hash.h"
#include "prepack/packed/source_identity.h"
#include "prepack/verify/decoded_weights.h"
#include "prepack/verify/exactness.h"
#include "prepack/verify/module_comparison.h"
#include "prepack/verify/module_products.h"
#include "prepack/verify/verify.h"

namespace prepack {

// The engine's name where models of the kernels multiply without oneDNN.
inline constexpr char kModelsAlone[] = "reference";

// What multiplies. Parts may run on different CPUs, but not with different versions of oneDNN, and
// not with oneDNN and without it.
struct EngineName {
  std::string name;    // empty: the level does not run
  std::string reason;  // why oneDNN does not multiply, although nobody asked for the models alone
};
// In a merge, what all parts have multiplied with: kUsage if that was not the same. Else `own`.
Result<EngineName> EngineTogether(Measurements& measured, const EngineName& own);

// The verification of an open folder, or of one part of it: then the report says nothing, but
// `measured` what was measured. Or the one that takes what all parts have measured.
Result<VerifyReport> VerifyWith(const VerifyOptions& options, const PackedFolder& folder,
                                Measurements& measured, Progress& progress);

// Units of a folder, for Measurements::Cut: its modules, the tensors that pass through and the
// files beside the shards.
void CutIntoParts(const PackedFolder& folder, Measurements& measured);

// The bytes of a range of a file: they belong to the module or tensor that lies there.
std::string UnitOfRange(std::string_view file, uint64_t offset, uint64_t bytes);

// The error as one of the input: what cannot be read for whatever reason.
Status AsMalformed(const Status& status);

// The hash of a whole file.
Result<std::string> HashFileTogether(const File& file, const std::string& name,
                                     Measurements& measured, Progress& progress);

// HashTensors, where other parts may hash some of the tensors.
Status HashSourceTogether(std::vector<const StoredTensor*> tensors, Measurements& measured,
                          unsigned threads, Progress& progress, TensorHashes& hashes);

}  // namespace prepack
