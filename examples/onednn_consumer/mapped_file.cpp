#include "mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "refusal.h"

namespace {

Refusal SystemFailure(const std::string& path, int error) {
  return {Exit::kSystem, path + ": " + std::strerror(error)};
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw SystemFailure(path, errno);
  struct stat status {};
  const bool known = fstat(file, &status) == 0;
  const bool usable = known && S_ISREG(status.st_mode) && status.st_size > 0;
  if (usable) {
    size_ = static_cast<uint64_t>(status.st_size);
    start_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
  }
  const int error = errno;
  close(file);  // the mapping stays
  if (known && !usable) throw Malformed(path, "it is empty, or no plain file");
  if (!known || start_ == MAP_FAILED) throw SystemFailure(path, error);
}

MappedFile::~MappedFile() {
  munmap(start_, size_);
}

std::span<const std::byte> MappedFile::Bytes(uint64_t offset, uint64_t size) const {
  if (size > size_ || offset > size_ - size) {
    throw Malformed(path_, "a tensor of " + std::to_string(size) + " bytes at " +
                               std::to_string(offset) + " is not inside the file of " +
                               std::to_string(size_) + " bytes. Was it cut off?");
  }
  return {static_cast<const std::byte*>(start_) + offset, size};
}
