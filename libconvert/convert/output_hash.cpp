#include "convert/output_hash.h"

#include <algorithm>

#include "base/cancellation.h"
#include "base/hash.h"

namespace prepack {
namespace {

constexpr uint64_t kChunkBytes = 1 << 20;  // stays in the L2 cache between the two hashes

// Reads [begin, end) of the file into both hashers; `inner` may be null.
Status HashRange(const File& file, uint64_t begin, uint64_t end, std::vector<std::byte>& buffer,
                 Xxh3Hasher& outer, Xxh3Hasher* inner, Progress& progress) {
  for (uint64_t offset = begin; offset < end; offset += kChunkBytes) {
    if (CancellationRequested()) return Interrupted(file.path().string());
    const auto chunk = std::span(buffer).first(std::min(kChunkBytes, end - offset));
    if (Status status = file.ReadAt(offset, chunk); !status.ok()) return status;
    outer.Update(chunk);
    if (inner != nullptr) inner->Update(chunk);
    progress.Add(chunk.size());
  }
  return {};
}

}  // namespace

Result<ShardHashes> HashShard(const File& file, const SafetensorsHeader& header,
                              Progress& progress) {
  std::vector<std::byte> buffer(kChunkBytes);
  Xxh3Hasher whole;
  Xxh3Hasher one;
  Status status = HashRange(file, 0, header.data_start, buffer, whole, nullptr, progress);
  if (!status.ok()) return status;
  ShardHashes hashes;
  for (const TensorInfo& tensor : header.tensors) {
    one.Reset();
    status = HashRange(file, header.data_start + tensor.begin, header.data_start + tensor.end,
                       buffer, whole, &one, progress);
    if (!status.ok()) return status;
    hashes.tensors.push_back(one.HexDigest());
  }
  hashes.file = {file.size(), whole.HexDigest()};
  return hashes;
}

Result<FileRecord> HashFile(const File& file, Progress& progress) {
  std::vector<std::byte> buffer(kChunkBytes);
  Xxh3Hasher whole;
  Status status = HashRange(file, 0, file.size(), buffer, whole, nullptr, progress);
  if (!status.ok()) return status;
  return FileRecord{file.size(), whole.HexDigest()};
}

}  // namespace prepack
