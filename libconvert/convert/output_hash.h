#ifndef PREPACK_CONVERT_OUTPUT_HASH_H_
#define PREPACK_CONVERT_OUTPUT_HASH_H_

#include <string>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "container/safetensors.h"
#include "convert/manifest.h"
#include "io/file.h"

namespace prepack {

// Hashes of one finished file and of each tensor in it, from one pass over what the file holds
// (not over what was meant to be written).
struct ShardHashes {
  FileRecord file;
  std::vector<std::string> tensors;  // in the order of header.tensors
};

Result<ShardHashes> HashShard(const File& file, const SafetensorsHeader& header,
                              Progress& progress);
// The same for a file that is not a shard.
Result<FileRecord> HashFile(const File& file, Progress& progress);

}  // namespace prepack

#endif  // PREPACK_CONVERT_OUTPUT_HASH_H_
