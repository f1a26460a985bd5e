#ifndef ONEDNN_CONSUMER_MAPPED_FILE_H_
#define ONEDNN_CONSUMER_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

// A whole file in memory, read-only. Nothing is read before it is touched. The file must not be
// shortened while it is mapped: the system answers a look behind its end with SIGBUS.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // throws Refusal
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Throws Refusal when the bytes are not all inside the file.
  std::span<const std::byte> Bytes(uint64_t offset, uint64_t size) const;

 private:
  std::string path_;
  uint64_t size_ = 0;
  void* start_ = nullptr;
};

#endif  // ONEDNN_CONSUMER_MAPPED_FILE_H_
