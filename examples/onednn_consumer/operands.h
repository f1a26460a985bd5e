#pragma once

// What goes into a multiplication: the parts of a module, which stay in the mapped files, and
// inputs in the type that the kernel takes. Nothing in this file calls oneDNN.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "packed_folder.h"

// The files of a folder. Each is mapped read-only when one of its tensors is first asked for, and
// the system reads a page only when something touches it. Nothing may shorten a file while it is
// mapped: the system answers an access past the new end with SIGBUS.
class MappedFolder {
 public:
  explicit MappedFolder(std::string path);
  ~MappedFolder();
  MappedFolder(const MappedFolder&) = delete;
  MappedFolder& operator=(const MappedFolder&) = delete;

  std::span<const std::byte> Bytes(const Part& part);  // throws Refusal

 private:
  std::string path_;
  std::map<std::string, std::span<const std::byte>> files_;
};

// The parts of a module. Spans point into the mapped files; parts that the primitive does not read
// from there are copied out. A part that the module does not have is empty.
struct Operands {
  std::span<const std::byte> weight;
  std::span<const std::byte> scale;
  std::span<const std::byte> zero_point;
  std::span<const std::byte> bias;
  std::vector<float> bias_values = {};
  std::vector<float> weight_sum = {};
  std::vector<uint64_t> input_order = {};  // weight column k is for input input_order[k]
  float input_scale = 1;
  int32_t input_zero_point = 0;
};

// Throws Refusal when a part is not inside its file, or holds numbers that are out of range.
Operands FindOperands(const Module& module, MappedFolder& files);

// Inputs [M, K] as a primitive takes them.
struct KernelInput {
  std::vector<std::byte> data;       // I8, BF16 or F32
  std::vector<float> scales;         // [M], of I8
  std::vector<int32_t> zero_points;  // [M], of I8
  std::vector<float> values;         // [M, K]: the numbers that `data` represents after rounding
};

// Puts the columns of x [M, K] into the order of the module's weights and converts them to `dtype`:
// I8 as the module's activations say, otherwise BF16. F32 holds the numbers rounded to BF16.
KernelInput MakeKernelInput(const Module& module, const Operands& operands,
                            const std::string& dtype, std::span<const float> x);

uint16_t ToBF16(float value);  // rounds a finite number to nearest, ties to even
float FromBF16(uint16_t bits);

// Converts an array of F32, BF16 or F16.
std::vector<float> ReadFloats(const std::string& dtype, std::span<const std::byte> bytes);

// Reads element i of an array at any address: tensors in a file need not be aligned.
template <typename T>
T Load(std::span<const std::byte> bytes, uint64_t i) {
  T value{};
  std::memcpy(&value, bytes.subspan(i * sizeof(T), sizeof(T)).data(), sizeof(T));
  return value;
}
