#include "prepack/io/output_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/io/file.h"
#include "prepack/io/posix.h"

namespace prepack {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPartialSuffix = "prepack-partial";
constexpr std::string_view kOldSuffix = "prepack-old";

// What renameat2 answers where the file system does not know a flag.
bool IsUnsupported(int result) {
  return result == -EINVAL || result == -ENOSYS || result == -EOPNOTSUPP;
}

Result<bool> Exists(const fs::path& path) {
  PREPACK_TRY_ASSIGN(const std::optional<struct stat> info, LookAtLink(path));
  return info.has_value();
}

Result<bool> IsPackedFolder(const fs::path& path) {
  const Result<bool> whole = Exists(path / kManifestName);
  return whole.ok() && !*whole ? Exists(path / kPartName) : whole;
}

// Absolute, so that a later change of the working directory means nothing; without trailing
// slashes, so that it has a name.
Result<fs::path> ResolveFinalPath(const fs::path& given) {
  std::error_code error;
  const fs::path path = WithoutTrailingSlashes(fs::absolute(given, error));
  const fs::path name = path.filename();
  if (error || name.empty() || name == "." || name == "..") {
    return Usage(given.empty() ? "output folder" : given.string(),
                 "does not name a folder to create")
        .Hint("Give the output folder a name");
  }
  return path;
}

// May the final name be taken?
Status CheckFinalPath(const fs::path& path, bool replace) {
  const Result<std::optional<struct stat>> info = LookAtLink(path);
  if (!info.ok() || !*info) return info.status();
  if (S_ISLNK((*info)->st_mode)) {
    return Usage(path.string(), "it exists and is a symbolic link")
        .Hint("Give the folder that it points to, or choose another one");
  }
  if (!S_ISDIR((*info)->st_mode)) {
    return Usage(path.string(), "it exists and is not a folder")
        .Hint("Choose another output folder");
  }
  PREPACK_TRY_ASSIGN(const bool is_packed, IsPackedFolder(path));
  if (!is_packed) {
    PREPACK_TRY_ASSIGN(const std::vector<std::string> names, NamesIn(path));
    if (!names.empty()) {
      return Usage(path.string(), "it exists, is not empty and is not a packed folder")
          .Found(fmt::format("no {} in it", kManifestName))
          .Hint("Choose another output folder");
    }
  }
  if (!replace) return Usage(path.string(), "already exists").Hint("--force replaces it");
  return {};
}

}  // namespace

fs::path WithoutTrailingSlashes(fs::path folder) {
  while (!folder.has_filename() && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

OutputFolder::OutputFolder(fs::path final_path, bool replace, Leftovers leftovers, OutputLock lock)
    : final_path_(std::move(final_path)),
      partial_path_(Sibling(kPartialSuffix)),
      replace_(replace),
      leftovers_(leftovers),
      lock_(std::move(lock)) {}

OutputFolder::OutputFolder(OutputFolder&& other) noexcept
    : final_path_(std::move(other.final_path_)),
      partial_path_(std::move(other.partial_path_)),
      replace_(other.replace_),
      leftovers_(other.leftovers_),
      lock_(std::move(other.lock_)) {}

OutputFolder& OutputFolder::operator=(OutputFolder&& other) noexcept {
  std::swap(final_path_, other.final_path_);
  std::swap(partial_path_, other.partial_path_);
  std::swap(replace_, other.replace_);
  std::swap(leftovers_, other.leftovers_);
  std::swap(lock_, other.lock_);
  return *this;
}

OutputFolder::~OutputFolder() {
  Discard();
}

fs::path OutputFolder::journal_path() const {
  return Sibling(kJournalSuffix);
}

fs::path OutputFolder::Sibling(std::string_view suffix) const {
  return HiddenSibling(final_path_, suffix);
}

Result<OutputFolder> OutputFolder::Create(const fs::path& final_path, bool replace,
                                          Leftovers leftovers) {
  PREPACK_TRY_ASSIGN(fs::path resolved, ResolveFinalPath(final_path));
  const OrderlyEnd until_the_folder_has_its_own;
  PREPACK_TRY_ASSIGN(OutputLock lock, OutputLock::Take(resolved));

  OutputFolder folder(std::move(resolved), replace, leftovers, std::move(lock));
  PREPACK_TRY(folder.RemoveLeftovers());
  PREPACK_TRY(CheckFinalPath(folder.final_path_, replace));
  const int result = posix::MakeFolder(folder.partial_path_);
  if (result == -EEXIST && leftovers == Leftovers::kKeep) return folder;
  if (result < 0)
    return SystemError(folder.partial_path_.string(), "cannot create the folder", -result);
  return folder;
}

// The old output, when a run was killed between the two renames of ReplaceInTwoSteps.
Status OutputFolder::PutOldBack() {
  const fs::path old_path = Sibling(kOldSuffix);
  const Result<bool> has_old = Exists(old_path);
  if (!has_old.ok() || !*has_old) return has_old.status();
  const Result<bool> has_new = Exists(final_path_);
  if (!has_new.ok() || *has_new) return has_new.status();
  const int result = posix::Rename(old_path, final_path_);
  if (result >= 0) return {};
  return SystemError(old_path.string(),
                     "cannot restore the old output, which an interrupted run had moved aside",
                     -result);
}

// What a run that was killed left behind. We hold the lock, so nobody is using it.
Status OutputFolder::RemoveLeftovers() {
  PREPACK_TRY(PutOldBack());
  // Notes without the folder that they are about mean nothing.
  PREPACK_TRY_ASSIGN(const bool keep,
                     leftovers_ == Leftovers::kKeep ? Exists(partial_path_) : Result<bool>(false));
  std::vector<fs::path> unwanted = {Sibling(kOldSuffix)};
  if (!keep) unwanted.insert(unwanted.end(), {journal_path(), partial_path_});
  for (const fs::path& path : unwanted) {
    const int result = posix::RemoveTree(path);
    if (result < 0)
      return SystemError(path.string(), "cannot remove what an interrupted run left behind",
                         -result);
  }
  return {};
}

Status OutputFolder::Commit() {
  Status status = SyncFolder(partial_path_);
  if (!status.ok()) return status;
  status = MoveIntoPlace();
  if (!status.ok()) return status;

  status = SyncFolder(final_path_.parent_path());
  if (!status.ok())
    return std::move(status).Hint("The new output is in place, but not yet safe from power loss");
  // The notes first: they must not outlive the folder that they are about.
  for (const fs::path& path : {journal_path(), partial_path_, Sibling(kOldSuffix)}) {
    const int result = posix::RemoveTree(path);
    if (result < 0) {
      return SystemError(path.string(),
                         "the new output is in place, but the old one could not be removed",
                         -result);
    }
  }
  lock_.Release();
  return {};
}

// Afterwards the old output, if there was one, has the name of the hidden folder or of the old one.
Status OutputFolder::MoveIntoPlace() {
  int result = posix::RenameNew(partial_path_, final_path_);
  // Plain rename would also take the place of an empty folder.
  if (IsUnsupported(result)) {
    PREPACK_TRY_ASSIGN(const bool exists, Exists(final_path_));
    result = exists ? -EEXIST : posix::Rename(partial_path_, final_path_);
  }
  if (result == -EEXIST) {
    // It may be another one than the one that Create looked at.
    PREPACK_TRY(CheckFinalPath(final_path_, replace_));
    result = posix::Exchange(partial_path_, final_path_);
    if (IsUnsupported(result)) return ReplaceInTwoSteps();
  }
  if (result < 0)
    return SystemError(final_path_.string(), "cannot rename the finished output to this name",
                       -result);
  return {};
}

Status OutputFolder::ReplaceInTwoSteps() {
  const fs::path old_path = Sibling(kOldSuffix);
  int result = posix::Rename(final_path_, old_path);
  if (result < 0) return SystemError(final_path_.string(), "cannot rename the old output", -result);
  result = posix::Rename(partial_path_, final_path_);
  if (result >= 0) return {};
  Status status =
      SystemError(final_path_.string(), "cannot rename the finished output to this name", -result);
  // Should this fail as well, the next Create tries again.
  if (posix::Rename(old_path, final_path_) < 0)
    status.Hint(fmt::format("The old output is now '{}'", old_path.string()));
  return status;
}

void OutputFolder::Discard() noexcept {
  if (!lock_.held()) return;
  // Nobody is left to tell about a failure here; the next Create removes what stays.
  if (leftovers_ == Leftovers::kRemove) {
    posix::RemoveTree(journal_path());
    posix::RemoveTree(partial_path_);
  }
  lock_.Release();
}

}  // namespace prepack
