#include "prepack/convert/gguf/output.h"

#include <sys/stat.h>

#include "prepack/convert/gguf/manifest.h"
#include "prepack/gguf/keys.h"
#include "prepack/gguf/model.h"
#include "prepack/io/posix.h"

namespace prepack::gguf {

Result<ModelOutput> ModelOutput::OneFile(const std::filesystem::path& given, bool replace) {
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
  output.final_ = path;
  output.partial_ = PartialSibling(path);
  return output;
}

Result<ModelOutput> ModelOutput::Split(const std::filesystem::path& folder, size_t count) {
  ModelOutput output;
  PREPACK_TRY_ASSIGN(OutputFolder made, OutputFolder::Create(folder, /*replace=*/false));
  output.folder_.emplace(std::move(made));
  const std::string stem = WithoutTrailingSlashes(folder).filename().string();
  for (size_t i = 0; i < count; ++i) output.names_.push_back(SplitName(stem, i, count));
  return output;
}

ModelOutput::ModelOutput(ModelOutput&& other) noexcept
    : lock_(std::move(other.lock_)),
      final_(std::move(other.final_)),
      partial_(std::exchange(other.partial_, {})),
      folder_(std::move(other.folder_)),
      names_(std::move(other.names_)) {}

ModelOutput::~ModelOutput() {
  if (!partial_.empty()) (void)posix::RemoveTree(partial_);
}

Result<std::vector<File>> ModelOutput::CreateFiles() {
  std::vector<File> files;
  if (!folder_) {
    if (const int result = posix::RemoveTree(partial_); result < 0) {
      return SystemError(partial_.string(), "cannot remove what an earlier run left", -result);
    }
    PREPACK_TRY_ASSIGN(File file, File::CreateNew(partial_));
    files.push_back(std::move(file));
    return files;
  }
  for (const std::string& name : names_) {
    PREPACK_TRY_ASSIGN(File file, File::CreateNew(folder_->path() / name));
    files.push_back(std::move(file));
  }
  return files;
}

Status ModelOutput::Commit(const std::string& manifest) {
  if (folder_) {
    PREPACK_TRY(WriteTextFile(ManifestOf(folder_->path() / names_.front()), manifest));
    return folder_->Commit();
  }
  // The manifest first: without its file it is a file too many, the other way round one too few.
  PREPACK_TRY(WriteFileAtomically(ManifestOf(final_), manifest));
  if (const int result = posix::Rename(partial_, final_); result < 0) {
    return SystemError(final_.string(), "cannot give the file its name", -result);
  }
  partial_.clear();
  PREPACK_TRY(SyncFolder(final_.parent_path()));
  lock_.Release();
  return {};
}

}  // namespace prepack::gguf
