#ifndef PREPACK_CONVERT_OUTPUT_HASH_H_
#define PREPACK_CONVERT_OUTPUT_HASH_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/page_buffer.h"
#include "base/progress.h"
#include "base/result.h"
#include "container/safetensors.h"
#include "convert/file_range.h"
#include "convert/manifest.h"
#include "io/file.h"

namespace prepack {

// Hashes of one finished shard, from one pass over what the file holds (not over what was meant to
// be written). The hash of the file is that of ShardHash below.
struct ShardHashes {
  FileRecord file;
  std::vector<Hash128> tensors;  // in the order of header.tensors
};

Result<ShardHashes> HashShard(const File& file, const SafetensorsHeader& header,
                              Progress& progress);

// What the manifest calls the hash of a shard: xxh3-128 of the lines
//
//     XXH3_128\n        of the header (length, JSON and padding),
//     XXH3_128\n        then of every tensor, in the order of the file
//
// Tensors lie back to back, so this says all that the file holds; and unlike a hash over its bytes
// in one go, it can be made by many threads, or from what is known of the tensors already.
std::string ShardHash(const Hash128& header_hash, std::span<const Hash128> tensor_hashes);

// xxh3-128 of a range of a file. `buffer` is scratch memory, of any size.
Result<Hash128> HashRange(const FileRange& range, PageBuffer& buffer, Progress& progress);
// Of a file that is no shard: all of its bytes.
Result<FileRecord> HashFile(const File& file, Progress& progress);

}  // namespace prepack

#endif  // PREPACK_CONVERT_OUTPUT_HASH_H_
