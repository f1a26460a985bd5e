// Hashes the tensors of the source and compares them with what a run has recorded. Modification
// times play no part (docs/resume.md).

#include "prepack/packed/source_identity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "prepack/base/memory.h"
#include "prepack/base/parallel.h"
#include "prepack/base/status.h"
#include "prepack/container/json_writer.h"
#include "prepack/packed/output_hash.h"

namespace prepack {
namespace {

// The tensor's line without its name.
std::string RestOfLine(const StoredTensor& tensor, const Hash128& hash) {
  return fmt::format("{} [{}] {}", DTypeName(tensor.dtype), fmt::join(tensor.shape, ","),
                     hash.Hex());
}

std::string Line(std::string_view name, std::string_view rest) {
  return fmt::format("{} {}\n", name, rest);
}

// Adds the line of a tensor that has a hash.
void AddLine(const TensorHashes& hashes, const StoredTensor& tensor, Xxh3Hasher& hasher) {
  const std::optional<Hash128> hash = hashes.Of(tensor);
  if (hash) hasher.Update(Line(tensor.name, RestOfLine(tensor, *hash)));
}

}  // namespace

std::string SourceIdentity(const Checkpoint& checkpoint) {
  Xxh3Hasher hasher;
  hasher.Update(checkpoint.config_text());
  for (const auto& [name, config] : checkpoint.side_configs()) {
    hasher.Update(fmt::format("\n{} {}", name, PythonJsonText(config)));
  }
  for (const CheckpointFile& file : checkpoint.files()) {
    hasher.Update(fmt::format("\n{} {}", file.name, file.file.size()));
  }
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    hasher.Update(fmt::format("\n{} {} {} {} {}", tensor.name, DTypeName(tensor.dtype),
                              fmt::join(tensor.shape, ","), tensor.file, tensor.offset));
  }
  return hasher.HexDigest();
}

Status HashTensors(std::vector<const StoredTensor*> tensors, unsigned threads, TensorHasher hash_of,
                   TensorHashes& hashes) {
  std::erase_if(tensors,
                [&](const StoredTensor* tensor) { return hashes.Of(*tensor).has_value(); });
  // The largest first, so that no thread is left alone with one at the end.
  std::ranges::stable_sort(tensors, std::greater<>(), &StoredTensor::bytes);

  std::vector<PageBuffer> buffers(threads);
  return ParallelFor(tensors.size(), threads, [&](size_t index, unsigned worker) -> Status {
    PREPACK_TRY_ASSIGN(const Hash128 hash, hash_of(*tensors[index], buffers[worker]));
    hashes.Set(*tensors[index], hash);
    return {};
  });
}

Status HashTensors(std::vector<const StoredTensor*> tensors, unsigned threads, Progress& progress,
                   TensorHashes& hashes) {
  const auto hash_of = [&](const StoredTensor& tensor, PageBuffer& buffer) {
    return HashRange(RangeOf(hashes.checkpoint(), tensor), buffer, progress);
  };
  return HashTensors(std::move(tensors), threads, hash_of, hashes);
}

Status HashTensorsAsStage(std::vector<const StoredTensor*> tensors, unsigned threads,
                          Progress& progress, TensorHashes& hashes) {
  uint64_t bytes = 0;
  for (const StoredTensor* tensor : tensors) bytes += hashes.Of(*tensor) ? 0 : tensor->bytes;
  progress.Begin("hashing the source", bytes);
  return HashTensors(std::move(tensors), threads, progress, hashes);
}

std::vector<const StoredTensor*> WitnessedTensors(const Checkpoint& checkpoint, const Part& part) {
  std::vector<const StoredTensor*> tensors;
  for (const StoredTensor& tensor : checkpoint.tensors()) tensors.push_back(&tensor);
  std::ranges::sort(tensors, {}, [](const StoredTensor* tensor) {
    return std::tuple(tensor->file, tensor->offset, tensor->bytes);
  });
  uint64_t start = 0;
  std::erase_if(tensors, [&, total = checkpoint.total_bytes()](const StoredTensor* tensor) {
    const uint32_t share = PartOf(start, tensor->bytes, total, part.count);
    start += tensor->bytes;
    return !Witnesses(part, share);
  });
  return tensors;
}

SourceTensorLines SourceLines(const TensorHashes& hashes) {
  SourceTensorLines lines;
  for (const StoredTensor& tensor : hashes.checkpoint().tensors()) {
    const std::optional<Hash128> hash = hashes.Of(tensor);
    if (hash) lines.emplace(tensor.name, RestOfLine(tensor, *hash));
  }
  return lines;
}

std::string FingerprintOfLines(const SourceTensorLines& lines) {
  Xxh3Hasher hasher;
  for (const auto& [name, rest] : lines) hasher.Update(Line(name, rest));
  return hasher.HexDigest();
}

std::string SourceHash(const TensorHashes& hashes, std::vector<const StoredTensor*> tensors) {
  // As they lie in the checkpoint, they are ascending by name.
  std::ranges::sort(tensors);
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
  Xxh3Hasher hasher;
  for (const StoredTensor* tensor : tensors) AddLine(hashes, *tensor, hasher);
  return hasher.HexDigest();
}

std::string SourceFingerprint(const TensorHashes& hashes) {
  Xxh3Hasher hasher;
  for (const StoredTensor& tensor : hashes.checkpoint().tensors()) AddLine(hashes, tensor, hasher);
  return hasher.HexDigest();
}

}  // namespace prepack
