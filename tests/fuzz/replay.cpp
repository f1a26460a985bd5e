// Runs a fuzz target on files: the arguments, and all files of those that are folders. For ctest,
// which so keeps what fuzzing has found once; needs no libFuzzer. A target that ends the process
// fails.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/fuzz_target.h"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> FilesOf(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

int Replay(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "error: cannot read %s\n", path.c_str());
    return 1;
  }
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  // Told beforehand: who sees no end knows the input.
  std::printf("%s, %zu bytes\n", path.c_str(), bytes.size());
  std::fflush(stdout);
  return LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  size_t replayed = 0;
  for (int i = 1; i < argc; ++i) {
    for (const fs::path& file : FilesOf(argv[i])) {
      if (Replay(file) != 0) return 1;
      ++replayed;
    }
  }
  if (replayed > 0) return 0;
  std::fprintf(stderr, "error: no input to be replayed\n");
  return 1;
}
