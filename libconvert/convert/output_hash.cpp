#include "convert/output_hash.h"

#include <algorithm>

#include "base/cancellation.h"

namespace prepack {

Result<Hash128> HashRange(const File& file, uint64_t begin, uint64_t end, PageBuffer& buffer,
                          Progress& progress) {
  buffer.resize(kHashedPieceBytes);
  Xxh3Hasher hasher;
  for (uint64_t offset = begin; offset < end; offset += kHashedPieceBytes) {
    if (CancellationRequested()) return Interrupted(file.path().string());
    const auto piece = std::span(buffer).first(std::min(kHashedPieceBytes, end - offset));
    if (Status status = file.ReadAt(offset, piece); !status.ok()) return status;
    hasher.Update(piece);
    progress.Add(piece.size());
  }
  return hasher.Digest();
}

Status HashCachedRange(const File& file, uint64_t begin, uint64_t end, Xxh3Hasher& hasher) {
  constexpr uint64_t kPieceBytes = 4ULL * 1024 * 1024;  // between two looks at the cancellation
  for (uint64_t offset = begin; offset < end; offset += kPieceBytes) {
    if (CancellationRequested()) return Interrupted(file.path().string());
    const uint64_t bytes = std::min(kPieceBytes, end - offset);
    Status status = file.VisitAt(
        offset, bytes, [&](const std::byte* piece) { hasher.Update(std::span(piece, bytes)); });
    if (!status.ok()) return status;
  }
  return {};
}

Result<Hash128> HashSlot(const SafetensorsWriter& shard, size_t index) {
  const SafetensorsHeader& header = shard.header();
  const TensorInfo& tensor = header.tensors[index];
  Xxh3Hasher hasher;
  Status status = HashCachedRange(shard.file(), header.data_start + tensor.begin,
                                  header.data_start + tensor.end, hasher);
  if (!status.ok()) return status;
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
                              Progress& progress) {
  PageBuffer buffer;
  const Result<Hash128> of_header = HashRange(file, 0, header.data_start, buffer, progress);
  if (!of_header.ok()) return of_header.status();
  ShardHashes hashes;
  for (const TensorInfo& tensor : header.tensors) {
    const Result<Hash128> hash = HashRange(file, header.data_start + tensor.begin,
                                           header.data_start + tensor.end, buffer, progress);
    if (!hash.ok()) return hash.status();
    hashes.tensors.push_back(*hash);
  }
  hashes.file = {file.size(), ShardHash(*of_header, hashes.tensors)};
  return hashes;
}

Result<FileRecord> HashFile(const File& file, Progress& progress) {
  PageBuffer buffer;
  const Result<Hash128> hash = HashRange(file, 0, file.size(), buffer, progress);
  if (!hash.ok()) return hash.status();
  return FileRecord{file.size(), hash->Hex()};
}

}  // namespace prepack
