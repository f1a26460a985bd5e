#pragma once

// Writes tiny checkpoints, byte by byte, so that tests can describe good ones and break them.

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/container/json.h"

namespace prepack::testing {

// "10 32 ff" as bytes.
inline std::vector<std::byte> Hex(std::string_view text) {
  std::vector<std::byte> bytes;
  std::string digits;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) != 0) continue;
    digits += c;
    if (digits.size() == 2) {
      bytes.push_back(static_cast<std::byte>(std::stoul(digits, nullptr, 16)));
      digits.clear();
    }
  }
  return bytes;
}

// Little-endian 64-bit integers, as weight_shape holds them.
inline std::vector<std::byte> Int64s(const std::vector<int64_t>& values) {
  std::vector<std::byte> bytes;
  for (const int64_t value : values) {
    for (int i = 0; i < 8; ++i) {
      bytes.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i) & 0xFFU));
    }
  }
  return bytes;
}

struct TestTensor {
  std::string name;
  std::string dtype;  // as in a safetensors header
  std::vector<uint64_t> shape;
  std::vector<std::byte> bytes;
  size_t shard = 0;
};

struct TestCheckpoint {
  Json config = Json::object();
  std::vector<TestTensor> tensors;

  // The tensor of that name; it must exist.
  TestTensor& At(std::string_view name) {
    const auto it = std::find_if(tensors.begin(), tensors.end(),
                                 [&](const TestTensor& tensor) { return tensor.name == name; });
    if (it == tensors.end()) throw std::out_of_range("no tensor " + std::string(name));
    return *it;
  }
  void Remove(std::string_view name) {
    const TestTensor* gone = &At(name);
    tensors.erase(tensors.begin() + (gone - tensors.data()));
  }

  // Writes config.json and model.safetensors, or shards with an index when a tensor lies in a shard
  // above 0. Every shard must hold something.
  void Write(const std::filesystem::path& folder) const {
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "config.json") << config.dump(1);
    size_t shards = 1;
    for (const TestTensor& tensor : tensors) shards = std::max(shards, tensor.shard + 1);
    Json index = {{"metadata", Json::object()}, {"weight_map", Json::object()}};
    for (size_t shard = 0; shard < shards; ++shard) {
      const std::string file = shards == 1 ? "model.safetensors"
                                           : "model-0000" + std::to_string(shard + 1) + "-of-0000" +
                                                 std::to_string(shards) + ".safetensors";
      WriteShard(folder / file, shard);
      for (const TestTensor& tensor : tensors) {
        if (tensor.shard == shard) index["weight_map"][tensor.name] = file;
      }
    }
    if (shards > 1) std::ofstream(folder / "model.safetensors.index.json") << index.dump(1);
  }

 private:
  void WriteShard(const std::filesystem::path& path, size_t shard) const {
    Json header = {{"__metadata__", {{"format", "pt"}}}};
    std::vector<std::byte> data;
    for (const TestTensor& tensor : tensors) {
      if (tensor.shard != shard) continue;
      const size_t begin = data.size();
      data.insert(data.end(), tensor.bytes.begin(), tensor.bytes.end());
      header[tensor.name] = {
          {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
    }
    std::string json = header.dump();
    json.resize((json.size() + 7) / 8 * 8, ' ');
    std::ofstream out(path, std::ios::binary);
    const std::vector<std::byte> length = Int64s({static_cast<int64_t>(json.size())});
    out.write(reinterpret_cast<const char*>(length.data()), 8);
    out << json;
    out.write(reinterpret_cast<const char*>(data.data()),
              static_cast<std::streamsize>(data.size()));
  }
};

}  // namespace prepack::testing
