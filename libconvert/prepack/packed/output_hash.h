#pragma once

// Where the bytes of a tensor lie, in the source or in the output.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "prepack/base/function_ref.h"
#include "prepack/base/hash.h"
#include "prepack/base/memory.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/safetensors.h"
#include "prepack/container/safetensors_writer.h"
#include "prepack/io/file.h"
#include "prepack/packed/manifest.h"

namespace prepack {

// Bytes [begin, end) of a file, which must live longer.
struct FileRange {
  const File& file;
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
};

inline FileRange RangeOf(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  return {checkpoint.files()[tensor.file].file, tensor.offset, tensor.offset + tensor.bytes};
}

inline FileRange RangeOf(const File& shard, const SafetensorsHeader& header,
                         const TensorInfo& tensor) {
  return {shard, header.data_start + tensor.begin, header.data_start + tensor.end};
}

// The range of tensor `index` in a shard that is being written.
inline FileRange RangeOf(const SafetensorsWriter& shard, size_t index) {
  return RangeOf(shard.file(), shard.header(), shard.header().tensors[index]);
}

// Hashes of what a conversion reads and writes, made from the bytes as they pass by, while they are
// in the CPU's cache. What does not come in order is read again in the end.

// The hash of a range of a file, computed while the bytes stream by.
class StreamedHash {
 public:
  // Bytes `offset` and on of the range: taken if those before them were, else left for Finish.
  void Offer(uint64_t offset, std::span<const std::byte> bytes) {
    if (offset != hashed_) return;
    hasher_.Update(bytes);
    hashed_ += bytes.size();
  }
  // Takes what has not come of it. It was read or written just now, and so is in the page cache: it
  // is hashed where it lies there, in a mapping, which saves the copy.
  Status ReadRest(const FileRange& range);
  // The same, and gives the hash.
  Result<Hash128> Finish(const FileRange& range);

 private:
  Xxh3Hasher hasher_;
  uint64_t hashed_ = 0;
};

// The hashes of everything that a unit is made of and becomes.
struct UnitHashes {
  std::vector<const StoredTensor*> sources;
  std::vector<StreamedHash> of_sources;  // as `sources`
  std::vector<StreamedHash> of_outputs;  // as the slots of the unit

  void OfferSource(const StoredTensor* tensor, uint64_t offset, std::span<const std::byte> bytes) {
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i] == tensor) of_sources[i].Offer(offset, bytes);
    }
  }
};

// Hashes of one finished shard, from one pass over what the file holds (not over what was meant to
// be written). The hash of the file is that of ShardHash below.
struct ShardHashes {
  FileRecord file;
  std::vector<Hash128> tensors;  // in the order of header.tensors
};

// The hash of one tensor of a shard.
using ShardTensorHasher =
    FunctionRef<Result<Hash128>(const TensorInfo& tensor, PageBuffer& buffer)>;
Result<ShardHashes> HashShard(const File& file, const SafetensorsHeader& header,
                              ShardTensorHasher hash_of, Progress& progress);

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
// Hashes all bytes of a file that is not a shard.
Result<FileRecord> HashFile(const File& file, Progress& progress);

// The metadata of every shard: loaders ask whose tensors these are.
std::map<std::string, std::string> ShardMetadata();

}  // namespace prepack
