#include "prepack/gguf/cursor.h"

#include <fmt/format.h>

#include <algorithm>

#include "prepack/base/text.h"

namespace prepack::gguf {
namespace {

constexpr uint64_t kWindow = 64 << 10;

}  // namespace

Status Cursor::Need(std::string_view where, uint64_t bytes) const {
  if (bytes <= left()) return {};
  return Malformed(where, "the file ends here")
      .Found(fmt::format("{} after offset {}", Plural(left(), "byte"), offset_))
      .Expected(fmt::format("at least {}", bytes))
      .Hint("Is the download complete?");
}

Result<std::span<const std::byte>> Cursor::Window(uint64_t bytes) {
  const bool covered = offset_ >= window_start_ && offset_ - window_start_ <= window_.size() &&
                       bytes <= window_.size() - (offset_ - window_start_);
  if (!covered) {
    const uint64_t here = file_.present() - std::min(offset_, file_.present());
    window_.resize(std::max(bytes, std::min(kWindow, here)));
    window_start_ = offset_;
    PREPACK_TRY(file_.ReadAt(offset_, window_));
  }
  return std::span<const std::byte>(window_).subspan(offset_ - window_start_, bytes);
}

Result<uint64_t> Cursor::Uint(std::string_view where, uint32_t bytes) {
  PREPACK_TRY(Need(where, bytes));
  PREPACK_TRY_ASSIGN(const std::span<const std::byte> stored, Window(bytes));
  uint64_t number = 0;
  for (uint32_t i = bytes; i-- > 0;) number = number << 8 | std::to_integer<uint64_t>(stored[i]);
  offset_ += bytes;
  return number;
}

Result<uint64_t> Cursor::Length(std::string_view where) {
  PREPACK_TRY_ASSIGN(const uint64_t length, Uint(where, 8));
  if (length <= left()) return length;
  return Malformed(where, "a text is longer than the file")
      .Found(Plural(length, "byte"))
      .Expected(fmt::format("at most {}, which follow", left()))
      .Hint("Is the download complete?");
}

Result<std::string> Cursor::Text(std::string_view where, uint64_t bytes) {
  PREPACK_TRY(Need(where, bytes));
  PREPACK_TRY_ASSIGN(const std::span<const std::byte> stored, Window(bytes));
  offset_ += bytes;
  return std::string(reinterpret_cast<const char*>(stored.data()), stored.size());
}

Status Cursor::Skip(std::string_view where, uint64_t bytes) {
  PREPACK_TRY(Need(where, bytes));
  offset_ += bytes;
  return {};
}

}  // namespace prepack::gguf
