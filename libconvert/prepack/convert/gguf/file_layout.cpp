#include "prepack/convert/gguf/file_layout.h"

#include <fmt/format.h>

#include <span>

#include "prepack/base/checked.h"
#include "prepack/convert/gguf/writer.h"
#include "prepack/gguf/header.h"
#include "prepack/gguf/keys.h"
#include "prepack/io/file.h"

namespace prepack::gguf {
namespace {

constexpr uint64_t kCountsEnd = 24;  // magic, version, and two counts

}  // namespace

Result<FileLayout> FileLayout::Make(const Plan& plan, uint64_t shard_bytes) {
  FileLayout layout(plan, shard_bytes != 0);
  PREPACK_TRY(layout.ReadMetadata());
  layout.Divide(shard_bytes == 0 ? UINT64_MAX : shard_bytes);
  if (layout.shards_.size() > UINT16_MAX) {
    return Usage("--shard-size", "the model would have more files than GGUF can count")
        .Found(fmt::format("{}", layout.shards_.size()));
  }
  return layout;
}

Status FileLayout::ReadMetadata() {
  PREPACK_TRY_ASSIGN(const File file, File::OpenForRead(plan_.metadata));
  PREPACK_TRY_ASSIGN(const gguf::Header header, ReadHeader(file));
  alignment_ = header.alignment;
  entry_count_ = header.values.size();
  if (header.values.empty()) {
    return Unsupported("llama.cpp", "the converter wrote no metadata");
  }
  const Value& last = header.values.back();
  entries_.resize(last.offset + last.bytes - kCountsEnd);
  return file.ReadAt(kCountsEnd, std::as_writable_bytes(std::span(entries_)));
}

void FileLayout::Divide(uint64_t most) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < plan_.tensors.size(); ++i) {
    const uint64_t tensor = *CheckedAlignUp(plan_.tensors[i].bytes(), alignment_);
    if (shards_.empty() || bytes + tensor > most) {
      shards_.push_back({.first = i});
      bytes = 0;
    }
    bytes += tensor;
    ++shards_.back().count;
    shards_.back().bytes = bytes;
  }
  for (size_t no = 0; no < shards_.size(); ++no) {
    shards_[no].header_bytes = Header(no, std::string(kManifestHashDigits, '0')).size();
    shards_[no].bytes += shards_[no].header_bytes;
  }
}

uint64_t FileLayout::bytes() const {
  uint64_t bytes = 0;
  for (const Shard& shard : shards_) bytes += shard.bytes;
  return bytes;
}

// Metadata is that of the first file. As llama.cpp writes them, the numbers of files have 16 bits.
std::string FileLayout::Header(size_t no, const std::string& manifest_hash) const {
  std::string entries;
  uint64_t count = 0;
  if (no == 0) {
    entries = entries_ + TextEntry(kManifestHash, manifest_hash);
    count = entry_count_ + 1;
  }
  if (split_) {
    entries += Uint16Entry(kSplitNo, static_cast<uint16_t>(no));
    entries += Uint16Entry(kSplitCount, static_cast<uint16_t>(shards_.size()));
    entries += Int32Entry(kSplitTensors, static_cast<int32_t>(plan_.tensors.size()));
    count += 3;
  }
  return HeaderBytes(entries, count, alignment_,
                     std::span(plan_.tensors).subspan(shards_[no].first, shards_[no].count));
}

}  // namespace prepack::gguf
