#include "formats/column_reader.h"

#include <algorithm>

namespace prepack {
namespace {

// Copying this much from the page cache costs about what a system call costs.
constexpr uint64_t kWorthReadingThrough = 4096;
// Half of an L2 cache of 512 KiB.
constexpr uint64_t kBufferBytes = 256ULL * 1024;
constexpr uint64_t kRowsMultiple = 64;

}  // namespace

ColumnReader::ColumnReader(const Checkpoint& checkpoint, const StoredTensor& tensor,
                           const ByteColumns& columns, uint64_t max_rows)
    : checkpoint_(checkpoint),
      tensor_(tensor),
      columns_(columns),
      through_(columns.row_bytes - columns.count <= kWorthReadingThrough),
      stride_(through_ ? columns.row_bytes : columns.count),
      rows_(std::min(max_rows, std::max(kRowsMultiple,
                                        kBufferBytes / stride_ / kRowsMultiple * kRowsMultiple))),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(rows_ * stride_)) {}

Status ColumnReader::Read(uint64_t row, uint64_t count) {
  const uint64_t offset = row * columns_.row_bytes + columns_.first;
  if (through_) {
    const uint64_t bytes = (count - 1) * stride_ + columns_.count;
    return checkpoint_.Read(tensor_, offset, {buffer_.get(), bytes});
  }
  for (uint64_t i = 0; i < count; ++i) {
    Status status = checkpoint_.Read(tensor_, offset + i * columns_.row_bytes,
                                     {buffer_.get() + i * stride_, columns_.count});
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace prepack
