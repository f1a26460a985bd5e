#include "prepack/io/missing_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "prepack/io/posix.h"

namespace prepack {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kCompared = uint64_t{1} << 16;  // bytes at a time

// What is here of the beginning, in the file that came.
Result<bool> BeginsAs(const File& file, const File& headers) {
  std::vector<std::byte> expected;
  std::vector<std::byte> found;
  for (uint64_t at = 0; at < headers.present(); at += expected.size()) {
    expected.resize(static_cast<size_t>(std::min(kCompared, headers.present() - at)));
    found.resize(expected.size());
    PREPACK_TRY(headers.ReadAt(at, expected));
    PREPACK_TRY(file.ReadAt(at, found));
    if (expected != found) return false;
  }
  return true;
}

Status CheckIsTheSame(const File& file, const File& headers) {
  bool alike = file.size() == headers.size();
  if (alike) {
    PREPACK_TRY_ASSIGN(alike, BeginsAs(file, headers));
  }
  if (alike) return {};
  return Malformed(headers.path().string(), "what --fetch has brought is another file")
      .Found(fmt::format("{} bytes", file.size()))
      .Expected(fmt::format("{} bytes, with the header that is here", headers.size()))
      .Hint("Has the model changed? Fetch all headers again");
}

}  // namespace

// Never destroyed: closing a file takes other objects of the process (io/mapping.h).
MissingFiles& MissingFiles::OfProcess() {
  static MissingFiles& missing = *new MissingFiles;
  return missing;
}

// Beside its place: a file that has its name is whole.
Status MissingFiles::FetchInto(const File& headers) {
  const fs::path& path = headers.path();
  const fs::path partial = PartialSibling(fs::path(path) += fmt::format(".{}", ::getpid()));
  Status status = fetch_(path.filename().string(), partial);
  if (status.ok()) {
    const Result<File> came = File::OpenForRead(partial);
    status = came.ok() ? CheckIsTheSame(*came, headers) : came.status();
  }
  const int renamed = status.ok() ? posix::Rename(partial, path) : 0;
  if (renamed < 0) status = SystemError(path.string(), "cannot rename a file to it", -renamed);
  if (!status.ok()) (void)posix::RemoveTree(partial);
  return status;
}

Result<const File*> MissingFiles::Whole(const File& headers) {
  const std::lock_guard lock(mutex_);
  const auto known = files_.find(headers.path());
  if (known != files_.end()) return &known->second;
  PREPACK_TRY_ASSIGN(const std::optional<struct stat> here, LookAtLink(headers.path()));
  if (!here) PREPACK_TRY(FetchInto(headers));
  PREPACK_TRY_ASSIGN(File file, File::OpenForRead(headers.path()));
  return &files_.emplace(headers.path(), std::move(file)).first->second;
}

}  // namespace prepack
