#include "convert/write_batch.h"

#include <mutex>
#include <span>
#include <utility>

namespace prepack {

Status WriteBatch::Add(SafetensorsWriter& shard, size_t index, Placement placement,
                       PageBuffer& bytes) {
  if (count_ > 0 && shard_ != &shard) {
    if (Status status = Flush(); !status.ok()) return status;
  }
  shard_ = &shard;
  bytes_ += bytes.size();
  if (count_ == pieces_.size()) pieces_.emplace_back();
  Piece& piece = pieces_[count_++];
  piece.index = index;
  piece.placement = std::move(placement);
  std::swap(piece.bytes, bytes);
  if (bytes_ >= kMaxBatchBytes) return Flush();
  const std::unique_lock turn(shard.turn(), std::try_to_lock);
  return turn.owns_lock() ? WriteAll() : Status();
}

Status WriteBatch::Flush() {
  if (count_ == 0) return {};
  const std::lock_guard turn(shard_->turn());
  return WriteAll();
}

Status WriteBatch::WriteAll() {
  Status status;
  for (size_t i = 0; i < count_ && status.ok(); ++i) {
    std::span<const std::byte> bytes = pieces_[i].bytes;
    status = ForPieces(pieces_[i].placement, [&](uint64_t offset, uint64_t count) {
      Status written = shard_->Write(pieces_[i].index, offset, bytes.first(count));
      bytes = bytes.subspan(count);
      return written;
    });
  }
  count_ = 0;
  bytes_ = 0;
  return status;
}

}  // namespace prepack
