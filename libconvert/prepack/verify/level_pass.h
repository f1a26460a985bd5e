#ifndef PREPACK_VERIFY_LEVEL_PASS_H_
#define PREPACK_VERIFY_LEVEL_PASS_H_

// The pass that verify makes over a packed folder: module by module and tensor by tensor, in the
// order in which they lie there. Each goes through all levels before the next one, so that its
// bytes come from the disk once: what the first level reads, the others find in the page cache. The
// levels know nothing of each other; only their order is here.
//
// Modules run side by side, one thread each, as long as their memory fits into the budget. Those
// that are too large for that get several threads.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "prepack/base/status.h"
#include "prepack/io/memory_limit.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/exactness.h"
#include "prepack/verify/gemm_check.h"
#include "prepack/verify/integrity.h"
#include "prepack/verify/report/report.h"

namespace prepack {

// Null: the level does not run.
struct PassLevels {
  IntegrityCheck* integrity = nullptr;
  ExactnessCheck* exactness = nullptr;
  GemmCheck* gemm = nullptr;
};

// What the levels take for a module, one after the other.
struct ModuleNeed {
  MemoryNeed compared;
  MemoryNeed multiplied;

  uint64_t Of(unsigned threads) const {
    return std::max(compared.shared + threads * compared.per_thread,
                    multiplied.shared + threads * multiplied.per_thread);
  }
};

// What a pass may use.
struct PassResources {
  unsigned threads = 1;
  uint64_t memory = 0;                     // bytes, for all modules that are looked at at a time
  std::span<const ModuleNeed> needs = {};  // of each module of the manifest
};

// How a module is worked on.
struct ModuleShare {
  unsigned threads = 1;
  uint64_t memory = 0;
};

// As few threads for one module as keep all threads busy, as far as memory allows. `modules`: how
// many there are in all.
ModuleShare ShareOf(const ModuleNeed& need, const PassResources& resources, size_t modules);

// Why levels stopped early: the first failure, by the order of the folder, that is of the folder or
// of the source. Integrity does not stop.
struct PassFailures {
  Status exactness;
  Status gemm;
};

// With a sample (null: every module), only its modules are looked at, and tensors only by what the
// manifest says of them. Any other failure, such as a disk that cannot be read, ends the pass.
Result<PassFailures> RunLevels(const PackedFolder& folder, const ModuleSample* sample,
                               const PassLevels& levels, const PassResources& resources,
                               Progress& progress);

// The folder, or the source, is not what it should be; other errors end a verification.
bool IsOfTheCheckpoints(const Status& status);

}  // namespace prepack

#endif  // PREPACK_VERIFY_LEVEL_PASS_H_
