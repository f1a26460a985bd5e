#include "prepack/verify/conversion_check.h"

#include <utility>

#include "prepack/base/status.h"
#include "prepack/io/output_folder.h"

namespace prepack {
namespace {

// A packed folder as the source is compared with a checkpoint that is complete.
bool CanBeLookedAt(const std::filesystem::path& source) {
  std::error_code error;
  return !std::filesystem::exists(source / kManifestName, error);
}

}  // namespace

Status ConversionCheck::Begins(const std::filesystem::path& folder, Manifest manifest,
                               MovingSource source) {
  if (!CanBeLookedAt(*options_.source)) return {};
  measured_.Recall(std::move(source.notes));
  measured_.MakeNotes(source.goes);
  for (const auto& [name, record] : manifest.modules) modules_.emplace(name, modules_.size());
  for (const TensorRecord& tensor : manifest.tensors) {
    tensors_.emplace(tensor.tensor, tensors_.size());
  }
  PREPACK_TRY_ASSIGN(PackedFolder opened,
                     PackedFolder::OpenUnfinished(folder, std::move(manifest)));
  folder_.emplace(std::move(opened));
  verification_.emplace(options_, *folder_, measured_, progress_);
  return verification_->Prepare();
}

Status ConversionCheck::ModuleIsWritten(const std::string& module) {
  return verification_ ? verification_->pass().RunModule(modules_.at(module)) : Status();
}

Status ConversionCheck::TensorIsWritten(const std::string& tensor) {
  return verification_ ? verification_->pass().RunTensor(tensors_.at(tensor)) : Status();
}

Result<std::vector<MeasuredNote>> ConversionCheck::SourceMayGo() {
  if (verification_) {
    PREPACK_TRY(verification_->CheckSoFar());
    return measured_.TakeNotes();
  }
  return Usage("--verify",
               "this conversion can only be verified when it is complete, with its source")
      .Hint("Leave out --consume, or --verify");
}

Status ConversionCheck::SourceFileMoved(size_t file) {
  return verification_ ? verification_->ReopenSource(file) : Status();
}

Result<VerifyReport> ConversionCheck::Finish() {
  if (!verification_) return Verify(options_, progress_);
  measured_.MakeNotes(false);
  PREPACK_TRY(folder_->Complete(options_.folder));
  PREPACK_TRY(verification_->CompareRecordsAgain());
  PREPACK_TRY(verification_->Finish());
  return verification_->TakeReport();
}

}  // namespace prepack
