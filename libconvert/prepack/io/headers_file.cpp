// Files of headers (kHeadersSuffix in file.h): how they are read and written.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/io/file.h"
#include "prepack/io/noted_ranges.h"
#include "prepack/io/posix.h"

namespace prepack {
namespace {

constexpr uint64_t kMostBytesOfFile = static_cast<uint64_t>(std::numeric_limits<off_t>::max());
constexpr size_t kPieceBytes = size_t{128} << 10;

constexpr std::string_view kRangesMark = "PREPACKH";
constexpr uint64_t kNumberBytes = sizeof(uint64_t);
constexpr uint64_t kRangeBytes = 2 * kNumberBytes;
constexpr uint64_t kTrailerBytes = kRangesMark.size() + 2 * kNumberBytes;
constexpr uint64_t kMostRanges = uint64_t{1} << 24;

std::filesystem::path HeadersOf(std::filesystem::path path) {
  return path += kHeadersSuffix;
}

void AppendNumber(std::string& text, uint64_t number) {
  for (size_t i = 0; i < kNumberBytes; ++i) text += static_cast<char>(number >> (8 * i) & 0xFF);
}

uint64_t NumberAt(std::span<const std::byte> bytes, size_t offset) {
  uint64_t number = 0;
  for (size_t i = kNumberBytes; i-- > 0;) {
    number = number << 8 | std::to_integer<uint64_t>(bytes[offset + i]);
  }
  return number;
}

Status NoHeadersFile(const std::filesystem::path& path, std::string_view what) {
  return Malformed(path.string(), fmt::format("not a file of headers: {}", what))
      .Hint("Remove it, and fetch the headers again");
}

}  // namespace

Status File::ReadRanges() {
  std::array<std::byte, kTrailerBytes> trailer = {};
  if (size_ < kTrailerBytes) return NoHeadersFile(path_, "it is too short");
  PREPACK_TRY(ReadAt(size_ - kTrailerBytes, trailer));
  if (std::memcmp(trailer.data(), kRangesMark.data(), kRangesMark.size()) != 0) {
    return NoHeadersFile(path_, fmt::format("\"{}\" is missing near its end", kRangesMark));
  }
  const uint64_t count = NumberAt(trailer, kRangesMark.size());
  const uint64_t whole = NumberAt(trailer, kRangesMark.size() + kNumberBytes);
  const uint64_t rest = size_ - kTrailerBytes;
  if (count == 0 || count > std::min(kMostRanges, rest / kRangeBytes) || whole > kMostBytesOfFile) {
    return NoHeadersFile(path_, "its table of ranges is longer than the file");
  }
  std::vector<std::byte> table(static_cast<size_t>(count * kRangeBytes));
  PREPACK_TRY(ReadAt(rest - table.size(), table));
  auto ranges = std::make_shared<std::vector<Range>>();
  uint64_t place = 0;
  uint64_t end = 0;  // of the range before
  for (size_t i = 0; i < count; ++i) {
    const Range range{.offset = NumberAt(table, i * kRangeBytes),
                      .bytes = NumberAt(table, i * kRangeBytes + kNumberBytes),
                      .place = place};
    const bool in_order = i == 0 ? range.offset == 0 : range.offset > end;
    if (!in_order || range.offset > whole || range.bytes > whole - range.offset ||
        range.bytes > rest - table.size() - place) {
      return NoHeadersFile(path_, "its ranges overlap, or lie outside of the file");
    }
    ranges->push_back(range);
    place += range.bytes;
    end = range.offset + range.bytes;
  }
  size_ = whole;
  ranges_ = std::move(ranges);
  return {};
}

ByteRanges File::ranges() const {
  ByteRanges here;
  if (!headers_only()) return here;
  for (const Range& range : *ranges_) here.emplace(range.offset, range.bytes);
  return here;
}

uint64_t File::HeadersSize() const {
  const Range& last = ranges_->back();
  return last.place + last.bytes + ranges_->size() * kRangeBytes + kTrailerBytes;
}

std::optional<uint64_t> File::PlaceOf(uint64_t offset, uint64_t bytes) const {
  const auto behind = std::ranges::upper_bound(*ranges_, offset, {}, &Range::offset);
  const Range& range = *std::prev(behind);  // the first one begins at 0
  const uint64_t skipped = offset - range.offset;
  if (skipped > range.bytes || bytes > range.bytes - skipped) return std::nullopt;
  return range.place + skipped;
}

Result<File> File::OpenWeights(const std::filesystem::path& path) {
  const std::filesystem::path headers = HeadersOf(path);
  PREPACK_TRY_ASSIGN(const std::optional<struct stat> here, LookAtLink(path));
  if (here) return OpenForRead(path);
  PREPACK_TRY_ASSIGN(const std::optional<struct stat> instead, LookAtLink(headers));
  if (!instead) return OpenForRead(path);
  PREPACK_TRY_ASSIGN(File file, OpenForRead(headers));
  PREPACK_TRY(file.ReadRanges());
  file.path_ = path;
  return file;
}

namespace {

// The same bytes in ranges that do not touch.
ByteRanges Joined(const ByteRanges& ranges) {
  ByteRanges joined;
  for (const auto& [offset, bytes] : ranges) {
    const auto before = joined.empty() ? joined.end() : std::prev(joined.end());
    if (before == joined.end() || before->first + before->second < offset) {
      joined.emplace_hint(joined.end(), offset, bytes);
    } else {
      before->second = std::max(before->second, offset + bytes - before->first);
    }
  }
  return joined;
}

Status AppendRange(const File& file, uint64_t offset, uint64_t bytes, TextFile& out) {
  std::string piece;
  for (uint64_t done = 0; done < bytes; done += piece.size()) {
    piece.resize(static_cast<size_t>(std::min<uint64_t>(kPieceBytes, bytes - done)));
    PREPACK_TRY(file.ReadAt(offset + done, std::as_writable_bytes(std::span(piece))));
    out.Append(piece);
  }
  return {};
}

}  // namespace

Status WriteHeadersFile(const File& file, const ByteRanges& ranges) {
  const std::filesystem::path path = HeadersOf(file.path());
  const std::filesystem::path partial = PartialSibling(path);
  PREPACK_TRY(RemoveIfThere(partial));
  PREPACK_TRY_ASSIGN(TextFile out, TextFile::Create(partial));
  const ByteRanges joined = Joined(ranges);
  std::string end;
  for (const auto& [offset, bytes] : joined) {
    PREPACK_TRY(AppendRange(file, offset, bytes, out));
    AppendNumber(end, offset);
    AppendNumber(end, bytes);
  }
  end += kRangesMark;
  AppendNumber(end, joined.size());
  AppendNumber(end, file.size());
  out.Append(end);
  PREPACK_TRY(out.Finish());
  const int result = posix::Rename(partial, path);
  if (result < 0) return SystemError(path.string(), "cannot rename a file to it", -result);
  return SyncFolder(path.parent_path());
}

Status File::NotHere(uint64_t offset, uint64_t bytes) const {
  return Unsupported(path_.string(), "headers only: the data of its tensors is not here")
      .Found(fmt::format("no bytes {} to {} of {}", offset, offset + bytes, size_))
      .Hint(
          "Download the model, or ask what headers can tell: plan, inspect, check --headers, "
          "diff --headers, doctor");
}

}  // namespace prepack
