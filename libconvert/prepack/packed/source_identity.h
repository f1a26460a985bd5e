#pragma once

// Identity of the source. Every tensor has its own hash, which does not depend on how the
// checkpoint is cut into shards. A set of tensors is identified by the hash of the lines
//
//     NAME DTYPE SHAPE XXH3_128\n        e.g. "a.weight_packed I32 [4,8] 0123…\n"
//
// in ascending order of the names.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "prepack/base/function_ref.h"
#include "prepack/base/hash.h"
#include "prepack/base/memory.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/packed/run_identity.h"

namespace prepack {

// Hash of config.json, of the quantizer's own configs, and of the names, sizes and headers of all
// shards: what is known before any weight is read.
std::string SourceIdentity(const Checkpoint& checkpoint);

// The xxh3-128 of the bytes of some or all tensors of a checkpoint. Tensors are named by reference,
// and are those of that very checkpoint.
class TensorHashes {
 public:
  // Begins without hashes. The checkpoint must live longer.
  explicit TensorHashes(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint), hashes_(checkpoint.tensors().size()), known_(hashes_.size()) {}

  const Checkpoint& checkpoint() const { return checkpoint_; }
  std::optional<Hash128> Of(const StoredTensor& tensor) const {
    const size_t number = NumberOf(checkpoint_, tensor);
    return known_[number] != 0 ? std::optional(hashes_[number]) : std::nullopt;
  }
  // Threads may do so at the same time, each for other tensors.
  void Set(const StoredTensor& tensor, const Hash128& hash) {
    const size_t number = NumberOf(checkpoint_, tensor);
    hashes_[number] = hash;
    known_[number] = 1;
  }

 private:
  const Checkpoint& checkpoint_;
  // In the order of the checkpoint's tensors, of which there may be very many.
  std::vector<Hash128> hashes_;
  std::vector<uint8_t> known_;  // not bits: threads set them
};

// Hashes those of the tensors that `hashes` does not have yet, each once, on `threads` threads.
Status HashTensors(std::vector<const StoredTensor*> tensors, unsigned threads, Progress& progress,
                   TensorHashes& hashes);
// The same, where a hash comes from `hash_of`: called from any thread, which has the buffer for
// itself.
using TensorHasher = FunctionRef<Result<Hash128>(const StoredTensor& tensor, PageBuffer& buffer)>;
Status HashTensors(std::vector<const StoredTensor*> tensors, unsigned threads, TensorHasher hash_of,
                   TensorHashes& hashes);
// The first, as a separate stage of the progress display.
Status HashTensorsAsStage(std::vector<const StoredTensor*> tensors, unsigned threads,
                          Progress& progress, TensorHashes& hashes);

// The tensors that a part reads as a witness (see Witnesses in packed/run_identity.h): the shares
// are those of the source, in the order of its files.
std::vector<const StoredTensor*> WitnessedTensors(const Checkpoint& checkpoint, const Part& part);

// Tensor name → the rest of its line, "I32 [4,8] 0123…".
using SourceTensorLines = std::map<std::string, std::string>;

// The lines of the tensors that have a hash.
SourceTensorLines SourceLines(const TensorHashes& hashes);
// Identity of what the lines are about.
std::string FingerprintOfLines(const SourceTensorLines& lines);

// Identity of some tensors (names in any order), or of all of the checkpoint. `hashes` must hold
// each of them.
std::string SourceHash(const TensorHashes& hashes, std::vector<const StoredTensor*> tensors);
std::string SourceFingerprint(const TensorHashes& hashes);

}  // namespace prepack
