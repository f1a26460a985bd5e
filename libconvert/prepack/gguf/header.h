#pragma once

// The header of one GGUF file: metadata and the list of tensors. A file is hostile input: every
// count and length is compared with what is left of the file before it is believed, and memory
// grows with what was read, never with what a number promises.
//
// Long values stay in the file. A tokenizer's array of 250,000 strings is walked once, to find its
// end, and costs no more memory than a number.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/gguf/ggml_types.h"
#include "prepack/io/file.h"

namespace prepack::gguf {

// The numbers are those in the file.
enum class ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

std::string_view ValueTypeName(ValueType type);  // "UINT8", as in `gguf` of Python
// Bytes of a number or a boolean; 0 of strings and arrays.
uint32_t ScalarBytes(ValueType type);

// An entry of the metadata.
struct Value {
  std::string key;
  ValueType type = ValueType::kUint8;
  ValueType element = ValueType::kUint8;  // of an array
  uint64_t count = 1;                     // elements of an array, bytes of a string
  uint64_t offset = 0;                    // in the file: of the text, of the first element
  uint64_t bytes = 0;                     // from there
  uint64_t bits = 0;                      // of a number or a boolean, as stored
};

struct Tensor {
  std::string name;
  GgmlType type = GgmlType::kF32;
  Dims dims;
  size_t file = 0;      // index into Model::files()
  uint64_t offset = 0;  // bytes from the start of that file
  uint64_t bytes = 0;
};

struct Header {
  uint32_t version = 0;
  uint64_t alignment = 0;
  std::vector<Value> values;    // in the order of the file
  std::vector<Tensor> tensors;  // in the order of the file, which is that of their offsets
  uint64_t data_start = 0;
  uint64_t unused_bytes = 0;  // behind the last tensor and its padding

  const Value* Find(std::string_view key) const;
};

Result<Header> ReadHeader(const File& file);

// A number, a boolean or an element of an array, by its bits.
double NumberOf(ValueType type, uint64_t bits);
std::string NumberText(ValueType type, uint64_t bits);  // "-5", "1e-06", "true"
// Nothing unless it is an integer, and not negative.
std::optional<uint64_t> UintOf(const Value& value);

}  // namespace prepack::gguf
