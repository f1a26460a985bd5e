#include "prepack/base/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace prepack {

Status::Status(ErrorKind kind, std::string_view where, std::string_view what)
    : error_(std::make_unique<Error>()) {
  error_->kind = kind;
  error_->where = where;
  error_->what = what;
}

Status::Status(const Status& other)
    : error_(other.error_ ? std::make_unique<Error>(*other.error_) : nullptr) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) error_ = other.error_ ? std::make_unique<Error>(*other.error_) : nullptr;
  return *this;
}

Status& Status::Found(std::string_view text) & {
  error_->found = text;
  return *this;
}

Status&& Status::Found(std::string_view text) && {
  error_->found = text;
  return std::move(*this);
}

Status& Status::Expected(std::string_view text) & {
  error_->expected = text;
  return *this;
}

Status&& Status::Expected(std::string_view text) && {
  error_->expected = text;
  return std::move(*this);
}

Status& Status::Hint(std::string_view text) & {
  error_->hint = text;
  return *this;
}

Status&& Status::Hint(std::string_view text) && {
  error_->hint = text;
  return std::move(*this);
}

Status&& Status::Id(std::string_view text) && {
  error_->id = text;
  return std::move(*this);
}

Status&& Status::In(std::string_view outer) && {
  if (error_) {
    error_->where =
        error_->where.empty() ? std::string(outer) : fmt::format("{}: {}", outer, error_->where);
  }
  return std::move(*this);
}

std::string Status::ToString() const {
  if (ok()) return "";
  constexpr size_t kMaxPart = 2000;  // a hostile file must not flood the terminal
  std::string text = error_->where.empty()
                         ? Printable(error_->what, kMaxPart)
                         : fmt::format("{}: {}", Printable(error_->where, kMaxPart),
                                       Printable(error_->what, kMaxPart));
  const std::string found = Printable(error_->found, kMaxPart);
  const std::string expected = Printable(error_->expected, kMaxPart);
  if (!found.empty() && !expected.empty()) {
    text += fmt::format(" (found {}, expected {})", found, expected);
  } else if (!found.empty()) {
    text += fmt::format(" (found {})", found);
  } else if (!expected.empty()) {
    text += fmt::format(" (expected {})", expected);
  }
  if (!error_->hint.empty()) text += ". " + Printable(error_->hint, kMaxPart);
  return text;
}

Status CheckFailed(std::string_view where, std::string_view what) {
  return {ErrorKind::kCheckFailed, where, what};
}

Status Usage(std::string_view where, std::string_view what) {
  return {ErrorKind::kUsage, where, what};
}

Status Malformed(std::string_view where, std::string_view what) {
  return {ErrorKind::kMalformed, where, what};
}

Status Unsupported(std::string_view where, std::string_view what) {
  return {ErrorKind::kUnsupported, where, what};
}

Status Unavailable(std::string_view where, std::string_view what) {
  return {ErrorKind::kUnavailable, where, what};
}

Status Interrupted(std::string_view where) {
  return {ErrorKind::kInterrupted, where, "stopped on request"};
}

Status SystemError(std::string_view where, std::string_view what, int errnum) {
  Status status(
      ErrorKind::kSystem, where,
      fmt::format("{}: {}", what, std::strerror(errnum)));  // NOLINT(concurrency-mt-unsafe)
  switch (errnum) {
    case ENOSPC:
      status.Hint("Free some space there or choose another output folder");
      break;
    case EDQUOT:
      status.Hint("Your disk quota is used up: free some space, or choose another output folder");
      break;
    case EFBIG:
      status.Hint(
          "Raise the file size limit (ulimit -f), or choose a file system that supports such large "
          "files");
      break;
    case EIO:
      status.Hint("The disk or the connection to it failed; the kernel's log (dmesg) says more");
      break;
    case ESTALE:
      status.Hint("The file was replaced or removed on the server in the meantime; try again");
      break;
    case ENOLCK:
      status.Hint("The file system cannot lock files; choose an output folder on another one");
      break;
    case ENAMETOOLONG:
      status.Hint("Choose a shorter name");
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      status.Hint("Check the permissions of the folder or choose another one");
      break;
    case EMFILE:
    case ENFILE:
      status.Hint("Raise the limit on open files (ulimit -n)");
      break;
    default:
      break;
  }
  return status;
}

int ExitCode(const Status& status) {
  return status.ok() ? 0 : static_cast<int>(status.kind());
}

namespace {

// Length of the well-formed UTF-8 sequence at the start of `text`, or 0.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  size_t length = 0;
  unsigned char min_second = 0x80;
  unsigned char max_second = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) min_second = 0xA0;  // no overlong forms
    if (lead == 0xED) max_second = 0x9F;  // no surrogates
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) min_second = 0x90;
    if (lead == 0xF4) max_second = 0x8F;
  }
  if (length == 0 || text.size() < length) return 0;
  if (byte(1) < min_second || byte(1) > max_second) return 0;
  for (size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return length;
}

// `sequence` must be well-formed.
char32_t CodePoint(std::string_view sequence) {
  constexpr unsigned char kLeadBits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  char32_t code = static_cast<unsigned char>(sequence[0]) & kLeadBits[sequence.size()];
  for (const char c : sequence.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3F);
  return code;
}

// Controls, what has no width, and what turns the direction of writing around: with these a name
// can look like another one, or rearrange the line that it stands in.
bool IsUnseen(char32_t code) {
  return (code >= 0x80 && code < 0xA0) || code == 0x61C || (code >= 0x200B && code <= 0x200F) ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF;
}

}  // namespace

std::string Printable(std::string_view text, size_t max_bytes) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (out.size() >= max_bytes) return out + "…";
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c < 0x7F) {
      out += text[i++];
      continue;
    }
    const size_t length = c >= 0x80 ? Utf8Length(text.substr(i)) : 0;
    const bool shown = length != 0 && !IsUnseen(CodePoint(text.substr(i, length)));
    const size_t taken = std::max<size_t>(length, 1);
    for (const char part : text.substr(i, taken)) {
      if (shown) {
        out += part;
      } else {
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(part));
      }
    }
    i += taken;
  }
  return out;
}

std::string PrintableJson(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (size_t i = 0; i < json.size();) {
    const size_t length = std::max<size_t>(1, Utf8Length(json.substr(i)));
    const std::string_view one = json.substr(i, length);
    const bool delete_character = one == "\x7F";
    if (delete_character || (length > 1 && IsUnseen(CodePoint(one)))) {
      out += fmt::format("\\u{:04x}",
                         delete_character ? 0x7FU : static_cast<unsigned>(CodePoint(one)));
    } else {
      out += one;
    }
    i += length;
  }
  return out;
}

}  // namespace prepack
