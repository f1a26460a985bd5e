#ifndef PREPACK_CONVERT_STREAMED_HASH_H_
#define PREPACK_CONVERT_STREAMED_HASH_H_

// Hashes of what a conversion reads and writes, made from the bytes as they pass by, while they are
// in the CPU's cache. What does not come in order is read again in the end.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "container/checkpoint.h"
#include "convert/file_range.h"

namespace prepack {

// Of a range of a file.
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

// Of all that a unit is made of and becomes.
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

}  // namespace prepack

#endif  // PREPACK_CONVERT_STREAMED_HASH_H_
