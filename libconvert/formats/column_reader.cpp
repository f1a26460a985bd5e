#include "formats/column_reader.h"

#include <algorithm>

namespace prepack {
namespace {

// Half of an L2 cache of 512 KiB.
constexpr uint64_t kBufferBytes = 256ULL * 1024;
constexpr uint64_t kRowsMultiple = 64;

}  // namespace

ColumnReader::ColumnReader(const Checkpoint& checkpoint, const StoredTensor& tensor,
                           const ByteColumns& columns, uint64_t max_rows)
    : checkpoint_(checkpoint),
      tensor_(tensor),
      columns_(columns),
      rows_(std::min(max_rows, std::max(kRowsMultiple, kBufferBytes / columns.count /
                                                           kRowsMultiple * kRowsMultiple))),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(rows_ * columns.count)) {}

Status ColumnReader::Read(uint64_t row, uint64_t count) {
  return checkpoint_.ReadRuns(tensor_,
                              {.offset = row * columns_.row_bytes + columns_.first,
                               .run_bytes = columns_.count,
                               .stride = columns_.row_bytes,
                               .runs = count},
                              {buffer_.get(), count * columns_.count});
}

}  // namespace prepack
