#include "convert/source_hash.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/hash.h"
#include "base/parallel.h"
#include "convert/output_hash.h"

namespace prepack {
namespace {

// All of its line but the name.
std::string RestOfLine(const StoredTensor& tensor, const std::string& hash) {
  return fmt::format("{} [{}] {}", DTypeName(tensor.dtype), fmt::join(tensor.shape, ","), hash);
}

std::string Line(std::string_view name, std::string_view rest) {
  return fmt::format("{} {}\n", name, rest);
}

Status HashMissing(const Checkpoint& checkpoint, std::vector<const StoredTensor*> missing,
                   unsigned threads, Progress& progress, TensorHashes& hashes) {
  // The largest first, so that no thread is left alone with one at the end.
  std::ranges::stable_sort(missing, std::greater<>(), &StoredTensor::bytes);

  std::vector<std::string> results(missing.size());
  std::vector<PageBuffer> buffers(threads);
  Status status = ParallelFor(missing.size(), threads, [&](size_t index, unsigned worker) {
    const StoredTensor& tensor = *missing[index];
    Result<std::string> hash = HashRange(checkpoint.files()[tensor.file].file, tensor.offset,
                                         tensor.offset + tensor.bytes, buffers[worker], progress);
    if (!hash.ok()) return hash.status();
    results[index] = *std::move(hash);
    return Status();
  });
  if (!status.ok()) return status;
  for (size_t i = 0; i < missing.size(); ++i) hashes[missing[i]->name] = std::move(results[i]);
  return {};
}

}  // namespace

Status HashTensors(const Checkpoint& checkpoint, unsigned threads, Progress& progress,
                   TensorHashes& hashes) {
  std::vector<const StoredTensor*> missing;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    if (!hashes.contains(tensor.name)) missing.push_back(&tensor);
  }
  return HashMissing(checkpoint, std::move(missing), threads, progress, hashes);
}

Status HashTensors(const Checkpoint& checkpoint, const std::set<std::string>& names,
                   unsigned threads, Progress& progress, TensorHashes& hashes) {
  std::vector<const StoredTensor*> missing;
  for (const std::string& name : names) {
    const StoredTensor* tensor = checkpoint.Find(name);
    if (tensor != nullptr && !hashes.contains(name)) missing.push_back(tensor);
  }
  return HashMissing(checkpoint, std::move(missing), threads, progress, hashes);
}

SourceTensorLines SourceLines(const Checkpoint& checkpoint, const TensorHashes& hashes) {
  SourceTensorLines lines;
  for (const auto& [name, hash] : hashes) {
    const StoredTensor* tensor = checkpoint.Find(name);
    if (tensor != nullptr) lines.emplace(name, RestOfLine(*tensor, hash));
  }
  return lines;
}

std::string FingerprintOfLines(const SourceTensorLines& lines) {
  Xxh3Hasher hasher;
  for (const auto& [name, rest] : lines) hasher.Update(Line(name, rest));
  return hasher.HexDigest();
}

std::string SourceHash(const Checkpoint& checkpoint, const TensorHashes& hashes,
                       std::span<const std::string> names) {
  Xxh3Hasher hasher;
  for (const std::string& name : std::set<std::string>(names.begin(), names.end())) {
    const StoredTensor* tensor = checkpoint.Find(name);
    const auto hash = hashes.find(name);
    if (tensor == nullptr || hash == hashes.end()) continue;
    hasher.Update(Line(name, RestOfLine(*tensor, hash->second)));
  }
  return hasher.HexDigest();
}

std::string SourceFingerprint(const Checkpoint& checkpoint, const TensorHashes& hashes) {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : checkpoint.tensors()) names.push_back(tensor.name);
  return SourceHash(checkpoint, hashes, names);
}

}  // namespace prepack
