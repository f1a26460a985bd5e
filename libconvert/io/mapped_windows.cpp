#include "io/mapped_windows.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace prepack {
namespace {

// A multiple of any page size, so that a window can begin there.
constexpr uint64_t kWindowAlignment = 64ULL * 1024;

std::shared_ptr<const Mapping> MapWindow(int fd, uint64_t file_bytes, uint64_t offset,
                                         uint64_t bytes, uint64_t at_least, int& error) {
  const uint64_t begin = offset / kWindowAlignment * kWindowAlignment;
  const uint64_t wanted = std::max(offset + bytes - begin, at_least);
  return Mapping::Map(fd, begin, std::min(wanted, file_bytes - begin), error);
}

}  // namespace

MappedWindows& MappedWindows::OfProcess() {
  // Never destroyed: files may be closed when the process ends.
  static auto* const windows = new MappedWindows;
  return *windows;
}

std::shared_ptr<const Mapping> MappedWindows::Find(uint64_t file, int fd, uint64_t file_bytes,
                                                   uint64_t offset, uint64_t bytes, int& error) {
  const std::lock_guard lock(mutex_);
  error = 0;
  for (auto window = windows_.rbegin(); window != windows_.rend(); ++window) {
    if (window->file != file || !window->mapping->Covers(offset, bytes)) continue;
    std::rotate(window.base() - 1, window.base(), windows_.end());
    return windows_.back().mapping;
  }
  if (windows_.size() == kKeptWindows) windows_.erase(windows_.begin());
  std::shared_ptr<const Mapping> mapping =
      MapWindow(fd, file_bytes, offset, bytes, kWindowBytes, error);
  if (error == ENOMEM) {  // the address space is full: make room, and ask for no more than needed
    windows_.clear();
    mapping = MapWindow(fd, file_bytes, offset, bytes, 0, error);
  }
  if (mapping != nullptr) windows_.push_back({file, mapping});
  return mapping;
}

void MappedWindows::Forget(uint64_t file) {
  const std::lock_guard lock(mutex_);
  std::erase_if(windows_, [file](const Window& window) { return window.file == file; });
}

size_t MappedWindows::size() const {
  const std::lock_guard lock(mutex_);
  return windows_.size();
}

}  // namespace prepack
