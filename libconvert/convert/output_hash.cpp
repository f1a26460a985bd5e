#include "convert/output_hash.h"

#include <algorithm>

#include "base/cancellation.h"
#include "base/hash.h"

namespace prepack {

Result<std::string> HashRange(const File& file, uint64_t begin, uint64_t end, PageBuffer& buffer,
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
  return hasher.HexDigest();
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

Result<std::string> HashSlot(const SafetensorsWriter& shard, size_t index) {
  const SafetensorsHeader& header = shard.header();
  const TensorInfo& tensor = header.tensors[index];
  Xxh3Hasher hasher;
  Status status = HashCachedRange(shard.file(), header.data_start + tensor.begin,
                                  header.data_start + tensor.end, hasher);
  if (!status.ok()) return status;
  return hasher.HexDigest();
}

std::string ShardHash(std::string_view header_hash, std::span<const std::string> tensor_hashes) {
  Xxh3Hasher hasher;
  hasher.Update(header_hash);
  hasher.Update("\n");
  for (const std::string& hash : tensor_hashes) {
    hasher.Update(hash);
    hasher.Update("\n");
  }
  return hasher.HexDigest();
}

Result<ShardHashes> HashShard(const File& file, const SafetensorsHeader& header,
                              Progress& progress) {
  PageBuffer buffer;
  const Result<std::string> of_header = HashRange(file, 0, header.data_start, buffer, progress);
  if (!of_header.ok()) return of_header.status();
  ShardHashes hashes;
  for (const TensorInfo& tensor : header.tensors) {
    Result<std::string> hash = HashRange(file, header.data_start + tensor.begin,
                                         header.data_start + tensor.end, buffer, progress);
    if (!hash.ok()) return hash.status();
    hashes.tensors.push_back(*std::move(hash));
  }
  hashes.file = {file.size(), ShardHash(*of_header, hashes.tensors)};
  return hashes;
}

Result<FileRecord> HashFile(const File& file, Progress& progress) {
  PageBuffer buffer;
  Result<std::string> hash = HashRange(file, 0, file.size(), buffer, progress);
  if (!hash.ok()) return hash.status();
  return FileRecord{file.size(), *std::move(hash)};
}

}  // namespace prepack
