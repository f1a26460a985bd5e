#include "prepack/convert/gguf/output.h"

#include <sys/stat.h>

#include "prepack/convert/gguf/manifest.h"
#include "prepack/gguf/keys.h"
#include "prepack/gguf/model.h"
#include "prepack/io/posix.h"

namespace prepack::gguf {
namespace {

constexpr std::string_view kCannotRemoveLeftover = "cannot remove what an earlier run left";

}  // namespace

Result<ModelOutput> ModelOutput::OneFile(const std::filesystem::path& given, bool replace,
                                         Leftovers leftovers) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(given, error);
  if (error || !path.has_filename()) return Usage(given.string(), "it names no file");
  PREPACK_TRY_ASSIGN(OutputLock lock, OutputLock::Take(path));
  PREPACK_TRY_ASSIGN(const std::optional<struct stat> there, LookAtLink(path));
  if (there && !replace) {
    return Usage(path.string(), "it exists").Hint("--force replaces it, or choose another name");
  }
  if (there && (!S_ISREG(there->st_mode) || !IsGguf(path))) {
    return Usage(path.string(), "it exists and is no GGUF file: --force does not replace it")
        .Hint("Choose another name");
  }
  ModelOutput output;
  output.lock_ = std::move(lock);
  output.leftovers_ = leftovers;
  output.final_ = path;
  output.partial_ = PartialSibling(path);
  output.names_ = {output.partial_.filename().string()};
  return output;
}

Result<ModelOutput> ModelOutput::Split(const std::filesystem::path& folder, size_t count,
                                       Leftovers leftovers) {
  ModelOutput output;
  PREPACK_TRY_ASSIGN(OutputFolder made, OutputFolder::Create(folder, /*replace=*/false, leftovers));
  output.folder_.emplace(std::move(made));
  const std::string stem = WithoutTrailingSlashes(folder).filename().string();
  for (size_t i = 0; i < count; ++i) output.names_.push_back(SplitName(stem, i, count));
  return output;
}

ModelOutput::ModelOutput(ModelOutput&& other) noexcept
    : lock_(std::move(other.lock_)),
      leftovers_(other.leftovers_),
      final_(std::move(other.final_)),
      partial_(std::exchange(other.partial_, {})),
      folder_(std::move(other.folder_)),
      names_(std::move(other.names_)) {}

ModelOutput::~ModelOutput() {
  if (partial_.empty() || leftovers_ == Leftovers::kKeep) return;
  (void)posix::RemoveTree(journal_path());
  (void)posix::RemoveTree(partial_);
}

std::filesystem::path ModelOutput::journal_path() const {
  return folder_ ? folder_->journal_path() : HiddenSibling(final_, kJournalSuffix);
}

std::filesystem::path ModelOutput::folder() const {
  return folder_ ? folder_->path() : final_.parent_path();
}

Result<std::vector<File>> ModelOutput::OpenFiles(const std::vector<uint64_t>& sizes, bool goes_on,
                                                 std::vector<bool>& is_new) {
  std::vector<File> files;
  if (leftovers_ == Leftovers::kRemove) (void)posix::RemoveTree(journal_path());
  for (size_t i = 0; i < names_.size(); ++i) {
    const std::filesystem::path path = folder() / names_[i];
    PREPACK_TRY_ASSIGN(const std::optional<struct stat> there, LookAtLink(path));
    const bool stays = goes_on && there && S_ISREG(there->st_mode) &&
                       static_cast<uint64_t>(there->st_size) == sizes[i];
    is_new.push_back(!stays);
    if (stays) {
      PREPACK_TRY_ASSIGN(File file, File::OpenForUpdate(path));
      files.push_back(std::move(file));
      continue;
    }
    PREPACK_TRY(RemoveIfThere(path, kCannotRemoveLeftover));
    PREPACK_TRY_ASSIGN(File file, File::CreateNew(path));
    PREPACK_TRY(file.Allocate(sizes[i]));
    files.push_back(std::move(file));
  }
  return files;
}

Status ModelOutput::Commit(const std::string& manifest) {
  if (folder_) {
    const std::filesystem::path path = ManifestOf(folder_->path() / names_.front());
    PREPACK_TRY(RemoveIfThere(path, kCannotRemoveLeftover));
    PREPACK_TRY(WriteTextFile(path, manifest));
    return folder_->Commit();
  }
  // The manifest first: without its file it is a file too many, the other way round one too few.
  PREPACK_TRY(WriteFileAtomically(ManifestOf(final_), manifest));
  if (const int result = posix::Rename(partial_, final_); result < 0) {
    return SystemError(final_.string(), "cannot give the file its name", -result);
  }
  partial_.clear();
  PREPACK_TRY(SyncFolder(final_.parent_path()));
  PREPACK_TRY(RemoveIfThere(journal_path()));
  lock_.Release();
  return {};
}

}  // namespace prepack::gguf
