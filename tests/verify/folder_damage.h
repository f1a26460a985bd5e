#pragma once

// Changes bytes of a packed folder, and what its manifest says.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "prepack/io/output_folder.h"
#include "prepack/packed/manifest.h"
#include "prepack/packed/output_hash.h"
#include "status_matchers.h"

namespace prepack::testing {

// Where a part of a module lies.
inline TensorRecord PartOf(const std::filesystem::path& folder, const std::string& module,
                           const std::string& part) {
  return Value(ReadManifest(folder)).modules.at(module).parts.at(part);
}

inline std::vector<char> ReadBytes(const std::filesystem::path& folder, const TensorRecord& part,
                                   uint64_t offset, size_t count) {
  std::ifstream file(folder / part.file, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(part.offset + offset));
  std::vector<char> bytes(count);
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  REQUIRE(file.good());
  return bytes;
}

inline void WriteBytes(const std::filesystem::path& folder, const TensorRecord& part,
                       uint64_t offset, const std::vector<char>& bytes) {
  std::fstream file(folder / part.file, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(part.offset + offset));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(file.good());
}

inline void FlipBits(const std::filesystem::path& folder, const TensorRecord& part, uint64_t offset,
                     int mask) {
  std::vector<char> byte = ReadBytes(folder, part, offset, 1);
  byte[0] = static_cast<char>(byte[0] ^ mask);
  WriteBytes(folder, part, offset, byte);
}

// The hashes that a shard has now.
inline ShardHashes HashesOfShard(const File& file, const SafetensorsHeader& header) {
  Progress progress;
  const auto hash_of = [&](const TensorInfo& tensor, PageBuffer& buffer) {
    return HashRange(RangeOf(file, header, tensor), buffer, progress);
  };
  return Value(HashShard(file, header, hash_of, progress));
}

// Replaces the manifest by one with the right hash of itself.
inline void WriteManifest(const std::filesystem::path& folder, const Manifest& manifest) {
  std::ofstream(folder / kManifestName) << ManifestText(manifest);  // not flushed to the disk
}

inline void EditManifest(const std::filesystem::path& folder,
                         const std::function<void(Manifest& manifest)>& edit) {
  Manifest manifest = Value(ReadManifest(folder));
  edit(manifest);
  WriteManifest(folder, manifest);
}

}  // namespace prepack::testing
