#include "convert/write_batch.h"

#include <mutex>
#include <span>
#include <utility>

namespace prepack {
namespace {

Status WritePiece(SafetensorsWriter& shard, size_t index, const Placement& placement,
                  std::span<const std::byte> bytes) {
  return ForPieces(placement, [&](uint64_t offset, uint64_t count) {
    Status status = shard.Write(index, offset, bytes.first(count));
    bytes = bytes.subspan(count);
    return status;
  });
}

}  // namespace

Status WriteBatch::Add(SafetensorsWriter& shard, size_t index, const Placement& placement,
                       PageBuffer& bytes) {
  if (shard_ != &shard) {
    if (Status status = Flush(); !status.ok()) return status;
    shard_ = &shard;
  }
  std::unique_lock turn(shard.turn(), std::defer_lock);
  if (bytes.size() > kMaxWaitingBytes || count_ == kMaxWaitingPieces) turn.lock();
  if (turn.owns_lock() || turn.try_lock()) {
    Status status = WriteWaiting();
    return status.ok() ? WritePiece(shard, index, placement, bytes) : status;
  }
  if (count_ == pieces_.size()) pieces_.emplace_back();
  Piece& piece = pieces_[count_++];
  piece.index = index;
  piece.placement = placement;
  std::swap(piece.bytes, bytes);
  return {};
}

Status WriteBatch::Flush() {
  if (count_ == 0) return {};
  const std::lock_guard turn(shard_->turn());
  return WriteWaiting();
}

Status WriteBatch::WriteWaiting() {
  Status status;
  for (size_t i = 0; i < count_ && status.ok(); ++i) {
    status = WritePiece(*shard_, pieces_[i].index, pieces_[i].placement, pieces_[i].bytes);
  }
  count_ = 0;
  return status;
}

}  // namespace prepack
