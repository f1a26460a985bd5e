// Opens a packed folder and reads the weight of every module.
#include <prepack/packed/folder.h>

#include <cstdio>

prepack::Status PrintWeights(const char* path) {
  const prepack::Result<prepack::PackedFolder> folder = prepack::PackedFolder::Open(path);
  if (!folder.ok()) return folder.status();
  for (const auto& [name, module] : folder->manifest().modules) {
    const prepack::TensorRecord& weight = module.parts.at("weight");
    std::vector<std::byte> bytes(weight.bytes());
    const prepack::Status read = folder->Read(weight, 0, bytes);
    if (!read.ok()) return read;
    std::printf("%s: %zu bytes, the first is 0x%02x\n", weight.tensor.c_str(), bytes.size(),
                std::to_integer<unsigned>(bytes.at(0)));
  }
  return {};
}

int main(int argc, char** argv) {
  const prepack::Status status = PrintWeights(argc == 2 ? argv[1] : ".");
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return 1;
}
