#pragma once

// `convert --verify`: every module goes through all levels as soon as it has been written, while
// what it was made of and what was written are still in the page cache. The levels, their code and
// what they compare are those of verify.h; the folder's own manifest, files and config are judged
// in the end.
//
// What is proved is what the page cache holds. That the disk keeps it, only a later `verify` of the
// folder can tell.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/measure/measurements.h"
#include "prepack/packed/conversion_observer.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/report/report.h"
#include "prepack/verify/verification.h"
#include "prepack/verify/verify.h"

namespace prepack {

class ConversionCheck final : public ConversionObserver {
 public:
  // The options' source is that of the conversion, and their folder its output; both arguments must
  // outlive this. No sample, and no memory limit.
  ConversionCheck(const VerifyOptions& options, Progress& progress)
      : options_(options), progress_(progress) {}

  Status Begins(const std::filesystem::path& folder, Manifest manifest,
                MovingSource source) override;
  uint64_t bytes() const override { return verification_ ? verification_->bytes() : 0; }
  Status ModuleIsWritten(const std::string& module) override;
  Status TensorIsWritten(const std::string& tensor) override;
  Result<std::vector<MeasuredNote>> SourceMayGo() override;
  Status SourceFileMoved(size_t file) override;

  // When the output is complete. What the conversion did not write, because an earlier run had, is
  // looked at now. The errors are those of Verify.
  Result<VerifyReport> Finish();

 private:
  const VerifyOptions& options_;
  Progress& progress_;
  Measurements measured_;  // of no part
  std::optional<PackedFolder> folder_;
  std::optional<Verification> verification_;  // none: nothing can be looked at yet
  // Numbers in the manifest.
  std::map<std::string, size_t> modules_;
  std::map<std::string, size_t> tensors_;
};

}  // namespace prepack
