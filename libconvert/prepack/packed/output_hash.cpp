// Hashes the output while it is written. Runs of a tensor that arrive in order are hashed from the
// CPU's cache; whatever arrives out of order is read back from the page cache when the tensor is
// complete.

#include "prepack/packed/output_hash.h"

#include <algorithm>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"

namespace prepack {

Status StreamedHash::ReadRest(const FileRange& range) {
  constexpr uint64_t kPieceBytes = 4ULL * 1024 * 1024;  // between two checks for cancellation
  while (hashed_ < range.bytes()) {
    if (CancellationRequested()) return Interrupted(range.file.path().string());
    const uint64_t bytes = std::min(kPieceBytes, range.bytes() - hashed_);
    PREPACK_TRY(range.file.VisitAt(range.begin + hashed_, bytes, [&](const std::byte* piece) {
      Offer(hashed_, std::span(piece, bytes));
    }));
  }
  return {};
}

Result<Hash128> StreamedHash::Finish(const FileRange& range) {
  PREPACK_TRY(ReadRest(range));
  return hasher_.Digest();
}

Result<Hash128> HashRange(const FileRange& range, PageBuffer& buffer, Progress& progress) {
  buffer.resize(kHashedPieceBytes);
  Xxh3Hasher hasher;
  for (uint64_t offset = range.begin; offset < range.end; offset += kHashedPieceBytes) {
    if (CancellationRequested()) return Interrupted(range.file.path().string());
    const auto piece = std::span(buffer).first(std::min(kHashedPieceBytes, range.end - offset));
    PREPACK_TRY(range.file.ReadAt(offset, piece));
    hasher.Update(piece);
    progress.Add(piece.size());
  }
  return hasher.Digest();
}

std::string ShardHash(const Hash128& header_hash, std::span<const Hash128> tensor_hashes) {
  Xxh3Hasher hasher;
  hasher.Update(header_hash.Hex());
  hasher.Update("\n");
  for (const Hash128& hash : tensor_hashes) {
    hasher.Update(hash.Hex());
    hasher.Update("\n");
  }
  return hasher.HexDigest();
}

Result<ShardHashes> HashShard(const File& file, const SafetensorsHeader& header,
                              ShardTensorHasher hash_of, Progress& progress) {
  PageBuffer buffer;
  PREPACK_TRY_ASSIGN(const Hash128 of_header,
                     HashRange({file, 0, header.data_start}, buffer, progress));
  ShardHashes hashes;
  for (const TensorInfo& tensor : header.tensors) {
    PREPACK_TRY_ASSIGN(const Hash128 hash, hash_of(tensor, buffer));
    hashes.tensors.push_back(hash);
  }
  hashes.file = {file.size(), ShardHash(of_header, hashes.tensors)};
  return hashes;
}

Result<FileRecord> HashFile(const File& file, Progress& progress) {
  PageBuffer buffer;
  PREPACK_TRY_ASSIGN(const Hash128 hash, HashRange({file, 0, file.size()}, buffer, progress));
  return FileRecord{file.size(), hash.Hex()};
}

std::map<std::string, std::string> ShardMetadata() {
  return {{"format", "pt"}};
}

}  // namespace prepack
