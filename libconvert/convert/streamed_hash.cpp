#include "convert/streamed_hash.h"

#include "convert/output_hash.h"

namespace prepack {

Status StreamedHash::ReadRest(const File& file, uint64_t begin, uint64_t end) {
  Status status = HashCachedRange(file, begin + hashed_, end, hasher_);
  if (status.ok()) hashed_ = end - begin;
  return status;
}

Result<Hash128> StreamedHash::Finish(const File& file, uint64_t begin, uint64_t end) {
  Status status = ReadRest(file, begin, end);
  if (!status.ok()) return status;
  return hasher_.Digest();
}

}  // namespace prepack
