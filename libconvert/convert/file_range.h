#ifndef PREPACK_CONVERT_FILE_RANGE_H_
#define PREPACK_CONVERT_FILE_RANGE_H_

// Where the bytes of a tensor lie, in the source or in the output.

#include <cstddef>
#include <cstdint>

#include "container/checkpoint.h"
#include "container/safetensors.h"
#include "container/safetensors_writer.h"
#include "io/file.h"

namespace prepack {

// Bytes [begin, end) of a file, which must live longer.
struct FileRange {
  const File& file;
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
};

inline FileRange RangeOf(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  return {checkpoint.files()[tensor.file].file, tensor.offset, tensor.offset + tensor.bytes};
}

inline FileRange RangeOf(const File& shard, const SafetensorsHeader& header,
                         const TensorInfo& tensor) {
  return {shard, header.data_start + tensor.begin, header.data_start + tensor.end};
}

// Of tensor `index` of a shard that is being written.
inline FileRange RangeOf(const SafetensorsWriter& shard, size_t index) {
  return RangeOf(shard.file(), shard.header(), shard.header().tensors[index]);
}

}  // namespace prepack

#endif  // PREPACK_CONVERT_FILE_RANGE_H_
