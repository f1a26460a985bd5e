#ifndef PREPACK_VERIFY_FILE_INTEGRITY_H_
#define PREPACK_VERIFY_FILE_INTEGRITY_H_

// One file of a packed folder against the manifest.

#include <map>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "verify/module_states.h"
#include "verify/packed_folder.h"
#include "verify/report.h"

namespace prepack {

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

// Checks size and hash of a file, and the hashes of all tensors in it; of a shard, the header
// against the manifest, too. Adds a problem for each tensor that is damaged; when the file is
// missing or its header is damaged, one for the file and one for each module that it holds a part
// of. With a sample, of a shard only the parts of its modules are hashed. Fails only when it cannot
// be read at all.
Status CheckFile(const PackedFolder& folder, const std::string& name, const FileRecord& record,
                 const std::vector<OwnedTensor>& tensors, const ModuleSample* sample,
                 Progress& progress, std::vector<Problem>& problems);

// Are the bytes of the tensor hashed with that sample?
inline bool IsHashed(const OwnedTensor& owned, const ModuleSample* sample) {
  return sample == nullptr || sample->contains(owned.module);
}

}  // namespace prepack

#endif  // PREPACK_VERIFY_FILE_INTEGRITY_H_
