// Reads safetensors files from its input, each behind its length (4 bytes), and prints a line of
// JSON for each: the tensors and metadata that the library reads in it, or why it refuses it. For
// header_verdicts_test.py, which asks the format's own library about the same files.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "fuzz/fuzz_target.h"
#include "prepack/container/safetensors.h"

namespace prepack::fuzz {
namespace {

// A file in memory that takes one content after the other.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("header", 0)) {
    Demand(fd_ >= 0, "a file can be made in memory");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(fd_); }

  Result<SafetensorsHeader> Read(const std::string& bytes) const {
    const auto size = static_cast<ssize_t>(bytes.size());
    Demand(ftruncate(fd_, size) == 0 && pwrite(fd_, bytes.data(), bytes.size(), 0) == size,
           "a file in memory can be written");
    const Result<File> file = File::OpenForRead("/proc/self/fd/" + std::to_string(fd_));
    if (!file.ok()) return file.status();
    return ReadSafetensorsHeader(*file);
  }

 private:
  int fd_;
};

nlohmann::json Verdict(const Result<SafetensorsHeader>& header) {
  if (!header.ok()) {
    DemandGoodError(header.status());
    return {{"refused", header.status().what()}, {"found", header.status().found()}};
  }
  nlohmann::json tensors = nlohmann::json::object();
  for (const TensorInfo& tensor : header->tensors) {
    tensors[tensor.name] = {
        {"dtype", DTypeName(tensor.dtype)},
        {"shape", std::vector<uint64_t>(tensor.shape.begin(), tensor.shape.end())},
        {"begin", header->data_start + tensor.begin},
        {"end", header->data_start + tensor.end}};
  }
  return {{"tensors", tensors}, {"metadata", header->metadata}};
}

bool ReadBytes(size_t count, std::string& bytes) {
  bytes.resize(count);
  return std::fread(bytes.data(), 1, count, stdin) == count;
}

void Run() {
  const MemoryFile file;
  std::string bytes;
  while (ReadBytes(sizeof(uint32_t), bytes)) {
    Input length(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    const uint32_t low = length.U16();
    Demand(ReadBytes(low | uint32_t{length.U16()} << 16, bytes), "the input is whole");
    const auto replace = nlohmann::json::error_handler_t::replace;
    std::puts(Verdict(file.Read(bytes)).dump(-1, ' ', true, replace).c_str());
  }
}

}  // namespace
}  // namespace prepack::fuzz

int main() {
  prepack::fuzz::Run();
  return 0;
}
