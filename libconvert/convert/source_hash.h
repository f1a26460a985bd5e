#ifndef PREPACK_CONVERT_SOURCE_HASH_H_
#define PREPACK_CONVERT_SOURCE_HASH_H_

// Identity of the source. Every tensor is hashed by itself, so that a hash does not depend on how
// the checkpoint is cut into shards; a set of tensors is identified by the hash of the lines
//
//     NAME DTYPE SHAPE XXH3_128\n        e.g. "a.weight_packed I32 [4,8] 0123…\n"
//
// in ascending order of the names.

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/page_buffer.h"
#include "base/progress.h"
#include "base/result.h"
#include "container/checkpoint.h"

namespace prepack {

// Tensor name → xxh3-128 of its bytes.
using TensorHashes = std::map<std::string, std::string, std::less<>>;

// Hashes the tensors that `hashes` does not have yet, on `threads` threads: all of the checkpoint,
// or those of `names` that it has.
Status HashTensors(const Checkpoint& checkpoint, unsigned threads, Progress& progress,
                   TensorHashes& hashes);
Status HashTensors(const Checkpoint& checkpoint, const std::set<std::string>& names,
                   unsigned threads, Progress& progress, TensorHashes& hashes);

// Tensor name → the rest of its line, "I32 [4,8] 0123…".
using SourceTensorLines = std::map<std::string, std::string>;

// The lines of the tensors that have a hash.
SourceTensorLines SourceLines(const Checkpoint& checkpoint, const TensorHashes& hashes);
// Identity of what the lines are about.
std::string FingerprintOfLines(const SourceTensorLines& lines);

// Identity of some tensors (names in any order), or of all of the checkpoint. `hashes` must hold
// each of them.
std::string SourceHash(const Checkpoint& checkpoint, const TensorHashes& hashes,
                       std::span<const std::string> names);
std::string SourceFingerprint(const Checkpoint& checkpoint, const TensorHashes& hashes);

}  // namespace prepack

#endif  // PREPACK_CONVERT_SOURCE_HASH_H_
