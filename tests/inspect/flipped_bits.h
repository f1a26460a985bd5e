#pragma once

// Changing single bits of a checkpoint's tensors in place.

#include <filesystem>
#include <fstream>

#include "prepack/container/checkpoint.h"

namespace prepack::testing {

inline void FlipBit(const Checkpoint& checkpoint, std::string_view tensor, uint64_t bit) {
  const StoredTensor& stored = *checkpoint.Find(tensor);
  const auto at = static_cast<std::streamoff>(stored.offset + bit / 8);
  std::filesystem::path path = checkpoint.path();
  if (std::filesystem::is_directory(path)) path /= checkpoint.files()[stored.file].name;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 1 << (bit % 8)));
}

// A bit that is flipped while the object lives.
class FlippedBit {
 public:
  FlippedBit(const Checkpoint& checkpoint, std::string_view tensor, uint64_t bit)
      : checkpoint_(checkpoint), tensor_(tensor), bit_(bit) {
    FlipBit(checkpoint_, tensor_, bit_);
  }
  ~FlippedBit() { FlipBit(checkpoint_, tensor_, bit_); }
  FlippedBit(const FlippedBit&) = delete;
  FlippedBit& operator=(const FlippedBit&) = delete;

 private:
  const Checkpoint& checkpoint_;
  std::string_view tensor_;
  uint64_t bit_;
};

// A checkpoint's folder, copied so that it may be changed.
inline void CopyFolder(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(to)) {
    std::filesystem::permissions(entry, std::filesystem::perms::owner_write,
                                 std::filesystem::perm_options::add);
  }
}

}  // namespace prepack::testing
