#ifndef ONEDNN_CONSUMER_OPERANDS_H_
#define ONEDNN_CONSUMER_OPERANDS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mapped_file.h"
#include "packed_folder.h"

// The files of a folder, each mapped when its first tensor is asked for.
class MappedFolder {
 public:
  explicit MappedFolder(std::string path);
  std::span<const std::byte> Bytes(const Part& part);  // throws Refusal

 private:
  std::string path_;
  std::map<std::string, MappedFile> files_;
};

// The parts of a module where they lie in the mapped files; what is small and not read by the
// primitive itself is taken out.
struct Operands {
  std::span<const std::byte> weight;
  std::span<const std::byte> scale;
  std::span<const std::byte> zero_point;  // empty: none, as all that follow
  std::span<const std::byte> bias;
  std::vector<float> bias_values = {};
  std::vector<float> weight_sum = {};
  std::vector<uint64_t> input_order = {};
  float input_scale = 1;
  int32_t input_zero_point = 0;
};

// Throws Refusal when a part is not inside its file, or its numbers are out of range.
Operands FindOperands(const Module& module, MappedFolder& folder);

#endif  // ONEDNN_CONSUMER_OPERANDS_H_
