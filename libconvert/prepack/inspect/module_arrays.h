#pragma once

// All numbers of a quantized module as arrays, for programs that go on with them: wherever they
// lie, in the canonical layout of model/quantized_linear.h.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/dtype.h"
#include "prepack/base/status.h"
#include "prepack/container/safetensors.h"
#include "prepack/inspect/opened_folder.h"
#include "prepack/model/scheme.h"

namespace prepack {

// One of them:
//   codes        [N, K], bytes, or bf16 where they are the weights themselves; codes of 4 bits are
//                [N, ⌈K / 2⌉], two per byte, the even input channel in the low half
//   scales       f32 [N, G], absent for bf16
//   zero_points  u8 [N, G], absent when the scheme is symmetric
//   input_order  u32 [K], the k_order; absent if there is none
struct ModuleArray {
  std::string name;
  DType dtype = DType::kU8;
  TensorShape shape;
  std::filesystem::path file = {};
  uint64_t offset = 0;    // bytes from the start of the file
  bool in_place = false;  // the folder itself holds these bytes: `file` is one of its files
};

struct ModuleArrays {
  std::string module;
  std::string form;  // the format, or the layout
  Scheme scheme;
  uint64_t n = 0;
  uint64_t k = 0;
  std::vector<ModuleArray> arrays = {};
};

// Writes the arrays into a safetensors file, which appears whole or not at all and replaces an
// existing one, but for those that the folder holds byte for byte. Takes the memory of a panel and
// of the scales.
Result<ModuleArrays> WriteModuleArrays(const OpenedFolder& folder, std::string_view module,
                                       const std::filesystem::path& file);

}  // namespace prepack
