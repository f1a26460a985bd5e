#pragma once

// Bytes of GGUF files, sound ones and others, put together by hand.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/gguf/header.h"

namespace prepack::testing {

inline std::string Little(uint64_t number, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(number >> 8 * i);
  return text;
}

inline std::string LongText(std::string_view text) {
  return Little(text.size(), 8) + std::string(text);
}

inline std::string Entry(std::string_view key, gguf::ValueType type, std::string_view value) {
  return LongText(key) + Little(static_cast<uint64_t>(type), 4) + std::string(value);
}

inline std::string TextEntry(std::string_view key, std::string_view text) {
  return Entry(key, gguf::ValueType::kString, LongText(text));
}

inline std::string UintEntry(std::string_view key, uint64_t number) {
  return Entry(key, gguf::ValueType::kUint32, Little(number, 4));
}

inline std::string ArrayEntry(std::string_view key, gguf::ValueType element, uint64_t count,
                              std::string_view elements) {
  return Entry(
      key, gguf::ValueType::kArray,
      Little(static_cast<uint64_t>(element), 4) + Little(count, 8) + std::string(elements));
}

inline std::string TensorEntry(std::string_view name, const std::vector<uint64_t>& dims,
                               uint64_t type, uint64_t offset) {
  std::string text = LongText(name) + Little(dims.size(), 4);
  for (const uint64_t dim : dims) text += Little(dim, 8);
  return text + Little(type, 4) + Little(offset, 8);
}

struct GgufBytes {
  std::vector<std::string> entries = {};
  std::vector<std::string> tensors = {};
  std::string data = {};
  uint64_t version = 3;
  size_t alignment = 32;

  std::string Header() const {
    std::string text =
        "GGUF" + Little(version, 4) + Little(tensors.size(), 8) + Little(entries.size(), 8);
    for (const std::string& entry : entries) text += entry;
    for (const std::string& tensor : tensors) text += tensor;
    return text;
  }
  std::string Text() const {
    std::string text = Header();
    text.resize((text.size() + alignment - 1) / alignment * alignment);
    return text + data;
  }
};

}  // namespace prepack::testing
