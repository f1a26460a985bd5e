#pragma once

// `convert --target gguf --consume --verify`: rows are compared as soon as they are written, before
// the shards that they were made of go. The levels are those of gguf.h; the bytes of the file are
// compared with its manifest in the end.

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/convert/gguf/manifest.h"
#include "prepack/convert/gguf/observer.h"
#include "prepack/gguf/model.h"
#include "prepack/packed/run_identity.h"
#include "prepack/verify/gguf_verification.h"
#include "prepack/verify/report/report.h"
#include "prepack/verify/verify.h"

namespace prepack {

class GgufConversionCheck final : public gguf::FileObserver {
 public:
  // The options' source is that of the conversion; both arguments must outlive this.
  GgufConversionCheck(const VerifyOptions& options, Progress& progress)
      : options_(options), progress_(progress) {}

  Status Begins(const std::filesystem::path& file, gguf::Manifest manifest,
                std::vector<MeasuredNote> notes) override;
  Result<std::vector<MeasuredNote>> SourceMayGo(
      std::span<const gguf::WrittenRows> written) override;
  Status SourceFileMoved(size_t file) override;

  // When the output, whose first file is `options.folder`, is complete. One that was there already
  // is verified as ever.
  Result<VerifyReport> Finish();

 private:
  Status Recall(const gguf::WrittenRows& rows);

  const VerifyOptions& options_;
  Progress& progress_;
  std::map<std::string, std::string> notes_;  // of earlier runs: value by key
  std::optional<gguf::Model> model_;
  gguf::Manifest manifest_;
  std::optional<GgufVerification> verification_;
};

}  // namespace prepack
