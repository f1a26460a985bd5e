// Opens a packed folder and reads a tensor of it: the first part of every module, and its first
// byte.
#include <prepack/verify/packed_folder.h>

#include <cstdio>

int main(int argc, char** argv) {
  const auto folder = prepack::PackedFolder::Open(argc == 2 ? argv[1] : ".");
  if (!folder.ok()) return std::fprintf(stderr, "%s\n", folder.status().ToString().c_str()), 1;
  for (const auto& [name, module] : folder->manifest().modules) {
    const prepack::TensorRecord& weight = module.parts.at("weight");
    std::vector<std::byte> bytes(weight.bytes());
    const prepack::Status read = folder->Read(weight, 0, bytes);
    if (!read.ok()) return std::fprintf(stderr, "%s\n", read.ToString().c_str()), 1;
    std::printf("%s: %zu bytes, the first is 0x%02x\n", weight.tensor.c_str(), bytes.size(),
                std::to_integer<unsigned>(bytes.at(0)));
  }
}
