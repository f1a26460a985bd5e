#ifndef PREPACK_VERIFY_SECOND_TENSORS_H_
#define PREPACK_VERIFY_SECOND_TENSORS_H_

// How the second decoders get at tensors: by name, element by element, sharing nothing with the
// readers in formats/.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "container/checkpoint.h"

namespace prepack {

// The tensor of that name; that there is none is kMalformed.
Result<const StoredTensor*> SecondTensor(const Checkpoint& source, const std::string& name);

// A run of columns of a 2-D tensor, rows one after the other, as raw elements.
struct SecondRange {
  uint64_t row = 0;
  uint64_t rows = 0;
  uint64_t column = 0;
  uint64_t columns = 0;
};

// T is an integer of the tensor's element size. What lies outside the tensor is kMalformed.
template <typename T>
Status ReadSecond(const Checkpoint& source, const StoredTensor& tensor, const SecondRange& range,
                  std::vector<T>& out) {
  const bool inside = tensor.shape.size() == 2 && DTypeBits(tensor.dtype) == 8 * sizeof(T) &&
                      range.row <= tensor.shape[0] && range.rows <= tensor.shape[0] - range.row &&
                      range.column <= tensor.shape[1] &&
                      range.columns <= tensor.shape[1] - range.column;
  if (!inside) {
    return Malformed(source.Where(tensor), "not a matrix of the expected size");
  }
  out.resize(range.rows * range.columns);
  for (uint64_t row = 0; row < range.rows; ++row) {
    const uint64_t first = (range.row + row) * tensor.shape[1] + range.column;
    Status status = source.Read(
        tensor, first * sizeof(T),
        std::as_writable_bytes(std::span(out).subspan(row * range.columns, range.columns)));
    if (!status.ok()) return status;
  }
  return {};
}

// The same for floats of 16 or 32 bits.
Status ReadSecondFloats(const Checkpoint& source, const StoredTensor& tensor,
                        const SecondRange& range, std::vector<double>& out);

// The field of the quantization config in config.json, or nullptr.
const Json* SecondConfigField(const Checkpoint& source, const std::string& key);

}  // namespace prepack

#endif  // PREPACK_VERIFY_SECOND_TENSORS_H_
