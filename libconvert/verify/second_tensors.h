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

// The tensor of that name. That there is none is kUnsupported: the reader found the module, so that
// it is stored in a way that the second path does not know.
Result<const StoredTensor*> SecondTensor(const Checkpoint& source, const std::string& name);

// A tensor as a matrix: a vector is one column, a scalar is [1, 1], and of a stack of matrices the
// rows follow each other.
struct SecondShape {
  uint64_t rows = 1;
  uint64_t columns = 1;
};

// kUnsupported for more than three dimensions.
Result<SecondShape> ShapeOfSecond(const Checkpoint& source, const StoredTensor& tensor);

// A run of columns of such a matrix, rows one after the other, as raw elements.
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
  const Result<SecondShape> shape = ShapeOfSecond(source, tensor);
  if (!shape.ok()) return shape.status();
  const bool inside = DTypeBits(tensor.dtype) == 8 * sizeof(T) && range.row <= shape->rows &&
                      range.rows <= shape->rows - range.row && range.column <= shape->columns &&
                      range.columns <= shape->columns - range.column;
  if (!inside) {
    return Malformed(source.Where(tensor), "not a matrix of the expected size");
  }
  out.resize(range.rows * range.columns);
  const ByteRuns lines{.offset = (range.row * shape->columns + range.column) * sizeof(T),
                       .run_bytes = range.columns * sizeof(T),
                       .stride = shape->columns * sizeof(T),
                       .runs = range.rows};
  return source.ReadRuns(tensor, lines, std::as_writable_bytes(std::span(out)));
}

// The same for floats of 16 or 32 bits, and for exponents of 8 bits (F8_E8M0, also stored as U8).
Status ReadSecondFloats(const Checkpoint& source, const StoredTensor& tensor,
                        const SecondRange& range, std::vector<double>& out);

}  // namespace prepack

#endif  // PREPACK_VERIFY_SECOND_TENSORS_H_
