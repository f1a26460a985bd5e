#ifndef PREPACK_CONVERT_WRITE_BATCH_H_
#define PREPACK_CONVERT_WRITE_BATCH_H_

// What one thread has packed and not yet written. Writes to one file exclude each other in the
// kernel: a thread that finds the file busy goes on packing, and writes several pieces later, at
// once, rather than wait.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/page_buffer.h"
#include "base/status.h"
#include "container/safetensors_writer.h"
#include "layouts/layout.h"

namespace prepack {

// With so many pieces in the batch, the file is waited for.
inline constexpr size_t kMaxWaitingPieces = 8;
// Larger ones never wait: they would take too much memory.
inline constexpr uint64_t kMaxWaitingBytes = 256ULL * 1024;

class WriteBatch {
 public:
  // Writes `bytes` to their places in tensor `index` of the shard, now or later. They may be taken:
  // then `bytes` is another buffer afterwards, of any size. An error may be that of an earlier
  // piece.
  Status Add(SafetensorsWriter& shard, size_t index, const Placement& placement, PageBuffer& bytes);
  // Writes what is left.
  Status Flush();

 private:
  struct Piece {
    size_t index = 0;
    Placement placement;
    PageBuffer bytes;
  };

  Status WriteWaiting();

  SafetensorsWriter* shard_ = nullptr;  // of all pieces
  std::vector<Piece> pieces_;           // the first `count_` wait, the others are spare
  size_t count_ = 0;
};

}  // namespace prepack

#endif  // PREPACK_CONVERT_WRITE_BATCH_H_
