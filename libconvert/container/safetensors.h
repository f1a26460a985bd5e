#ifndef PREPACK_CONTAINER_SAFETENSORS_H_
#define PREPACK_CONTAINER_SAFETENSORS_H_

// The safetensors container (mirrors safetensors 0.8, safetensors/src/tensor.rs and README.md).
//
//     offset 0        u64, little-endian: H, the length of the header
//     offset 8        H bytes of JSON, padded with trailing spaces:
//                       {"__metadata__": {"key": "text", …},
//                        "NAME": {"dtype": "I32", "shape": [4, 8], "data_offsets": [begin, end]},
//                        …}
//     offset 8 + H    data; begin and end count from here
//
// Goals: nothing in the file is trusted; every error names file, tensor, field, what was found and
// what was expected. Sorted by offset, the tensors must start at 0, touch exactly, and end exactly
// at the end of the file. Stricter than the library: duplicate tensor names are refused there only
// when they disagree, here always.
// Non-goals: loading tensors into memory. This header describes; bytes are read on request.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "container/tensor_shape.h"
#include "io/file.h"

namespace prepack {

// One tensor as the header describes it.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kU8;
  TensorShape shape;
  uint64_t begin = 0;  // bytes from the start of the data
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;              // ascending by begin, then by end
  std::map<std::string, std::string> metadata;  // __metadata__
  uint64_t data_start = 0;                      // bytes from the start of the file
};

inline constexpr uint64_t kHeaderLengthBytes = 8;  // in front of the header

// Limits of what is read, all far above what real files hold.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format itself
// So there are less than 2,000,000 tensors: the shortest entry of one has 51 bytes.
inline constexpr size_t kMaxTensorRank = 8;
inline constexpr size_t kMaxTensorNameBytes = 4096;

// Parses and checks the JSON of a header (without the 8 length bytes) for a file with
// `data_bytes` of data. `where` names the file.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, uint64_t data_bytes,
                                                 std::string_view where);
// Reads and checks the header of an open file.
Result<SafetensorsHeader> ReadSafetensorsHeader(const File& file);

}  // namespace prepack

#endif  // PREPACK_CONTAINER_SAFETENSORS_H_
