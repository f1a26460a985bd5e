#include "prepack/check/parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "prepack/base/status.h"
#include "prepack/check/data_check.h"
#include "prepack/gguf/model.h"
#include "prepack/measure/measurements.h"

namespace prepack {
namespace {

PartIdentity IdentityOfCheck(const CheckOptions& options) {
  return {CommandIdentity("check"),
          {.name = "source",
           .other = "another checkpoint, or one that has changed",
           .value = CheckpointIdentity(options.source)},
          {.name = "baseline",
           .other = "another baseline, or one that has changed",
           .value = options.baseline ? CheckpointIdentity(*options.baseline) : "none"},
          {.name = "accepted",
           .other = "a check that accepted other findings",
           .value = fmt::format("{}", fmt::join(options.accepted.texts(), " "))}};
}

Status NeedsData(const CheckOptions& options) {
  if (gguf::IsGguf(options.source)) {
    return Usage("--part", "a check of a GGUF model has no parts").Hint("Check it on one machine");
  }
  if (!options.headers_only) return {};
  return Usage("--headers", "a check of headers has no parts: it takes milliseconds");
}

}  // namespace

Result<PartReport> CheckPart(const CheckOptions& options, const Part& part, Progress& progress) {
  PREPACK_TRY(NeedsData(options));
  Measurements measured(part);
  PREPACK_TRY(CheckWith(options, measured, progress).status());
  return measured.Report(IdentityOfCheck(options));
}

Result<CheckReport> MergeCheck(const CheckOptions& options,
                               std::span<const std::filesystem::path> reports, Progress& progress) {
  PREPACK_TRY(NeedsData(options));
  PREPACK_TRY_ASSIGN(Measurements measured, Measurements::Read(reports, IdentityOfCheck(options)));
  Result<CheckReport> report = CheckWith(options, measured, progress);
  PREPACK_TRY(measured.wrong());
  return report;
}

}  // namespace prepack
