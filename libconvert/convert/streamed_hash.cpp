#include "convert/streamed_hash.h"

#include <algorithm>

#include "base/cancellation.h"

namespace prepack {

Status StreamedHash::ReadRest(const FileRange& range) {
  constexpr uint64_t kPieceBytes = 4ULL * 1024 * 1024;  // between two looks at the cancellation
  while (hashed_ < range.bytes()) {
    if (CancellationRequested()) return Interrupted(range.file.path().string());
    const uint64_t bytes = std::min(kPieceBytes, range.bytes() - hashed_);
    Status status = range.file.VisitAt(range.begin + hashed_, bytes, [&](const std::byte* piece) {
      Offer(hashed_, std::span(piece, bytes));
    });
    if (!status.ok()) return status;
  }
  return {};
}

Result<Hash128> StreamedHash::Finish(const FileRange& range) {
  Status status = ReadRest(range);
  if (!status.ok()) return status;
  return hasher_.Digest();
}

}  // namespace prepack
