#ifndef PREPACK_FORMATS_COLUMN_READER_H_
#define PREPACK_FORMATS_COLUMN_READER_H_

// Reads a run of columns of a stored matrix, some rows at a time: formats that store weights by
// input channel have the channels of a panel in a short run of every row.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "container/checkpoint.h"

namespace prepack {

// Of every row, which has `row_bytes` bytes: those from `first` on. They must lie inside the row.
struct ByteColumns {
  uint64_t row_bytes = 0;
  uint64_t first = 0;
  uint64_t count = 0;  // not 0
};

class ColumnReader {
 public:
  // Reads up to `max_rows` > 0 rows at a time. Refers to the checkpoint and to the tensor.
  ColumnReader(const Checkpoint& checkpoint, const StoredTensor& tensor, const ByteColumns& columns,
               uint64_t max_rows);

  // How many rows one Read takes: at most max_rows, a multiple of 64 when below that.
  uint64_t rows() const { return rows_; }
  // Rows [row, row + count), count ≤ rows(). The bytes stay until the next call.
  Status Read(uint64_t row, uint64_t count);
  // The columns of the i-th of them are at data() + i · stride().
  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(buffer_.get()); }
  size_t stride() const { return columns_.count; }

 private:
  const Checkpoint& checkpoint_;
  const StoredTensor& tensor_;
  ByteColumns columns_;
  uint64_t rows_;
  std::unique_ptr<std::byte[]> buffer_;
};

}  // namespace prepack

#endif  // PREPACK_FORMATS_COLUMN_READER_H_
