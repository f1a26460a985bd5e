#pragma once

// Which files of a packed folder loaders read. transformers and vLLM take "model.safetensors" if it
// exists, otherwise the shards that "model.safetensors.index.json" names. vLLM also lists the
// folder for more files, and takes only "consolidated*.safetensors" if it takes the model for one
// of Mistral's. No two loaders may end up with different tensors.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/hash.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/measure/measurements.h"
#include "prepack/packed/folder.h"
#include "prepack/packed/manifest.h"
#include "prepack/verify/report/report.h"

namespace prepack {

// Names of the manifest's .safetensors files that a loader would pass over, or take in the place of
// others, ascending: all but "model.safetensors" alone without an index, or
// "model-00001-of-0000N.safetensors" to the last of them with one.
std::vector<std::string> FilesNotLoaded(const Manifest& manifest);

// A tensor of the output and what it belongs to.
struct OwnedTensor {
  const TensorRecord* tensor = nullptr;
  std::string module;  // empty: it passed through
  std::string owner;   // for messages: "module a.b: part weight", or "tensor a.b"
};

// File → the tensors that the manifest says it holds. The manifest must outlive it.
using TensorsByFile = std::map<std::string, std::vector<OwnedTensor>>;
TensorsByFile GroupByFile(const Manifest& manifest);

// Is a file of the folder a shard of weights, by its name?
bool IsShard(const std::string& name);

// The hashes of pieces of a file, by offset and size.
using RangeHashes = std::map<std::pair<uint64_t, uint64_t>, Hash128>;

// Level 1: is the folder what was written? Sizes and hashes of all files and of all tensors in
// them, from one pass; headers against the manifest; packing fingerprints recomputed with today's
// code. With a sample, the bytes of shards are hashed only where they are parts of its modules, and
// notes say what was not.
class IntegrityCheck {
 public:
  // All arguments must outlive it. `sample` may be null: every module.
  IntegrityCheck(const PackedFolder& folder, const ModuleSample* sample, Progress& progress);

  // Before all else: this is a part of a check, or takes what all parts have measured.
  void Share(Measurements& measured) { measured_ = &measured; }

  // How much of the folder it hashes.
  uint64_t bytes() const;

  // Hashes a tensor of the folder ahead of Finish, from any thread: before the other levels read
  // it, which then find it in the page cache. What cannot be read is for Finish to report.
  void Hash(const TensorRecord& tensor);

  // Hashes what has not been hashed, and judges. Sets the states of the modules in `figures`. Fails
  // only when a check cannot be carried out at all.
  Result<LevelResult> Finish(unsigned threads, ModuleFigures& figures);

 private:
  const PackedFolder& folder_;
  const ModuleSample* sample_;
  Progress& progress_;
  Measurements alone_;
  Measurements* measured_ = &alone_;
  std::mutex mutex_;
  std::map<std::string, RangeHashes> hashes_;  // by file
};

}  // namespace prepack
