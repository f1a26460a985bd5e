#pragma once

// Verifications that are cut into parts and merged.

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "prepack/io/file.h"
#include "prepack/verify/parts.h"
#include "prepack/verify/report/writers.h"
#include "prepack/verify/verify.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {

// Writes the reports of `count` parts into `folder`, and names them.
inline Result<std::vector<std::filesystem::path>> VerifyParts(const VerifyOptions& options,
                                                              uint32_t count,
                                                              const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> reports;
  for (uint32_t index = 1; index <= count; ++index) {
    Progress progress;
    PREPACK_TRY_ASSIGN(const PartReport report,
                       VerifyPart(options, {.index = index, .count = count}, progress));
    reports.push_back(folder / (std::to_string(index) + ".json"));
    PREPACK_TRY(WriteTextFile(reports.back(), report.text));
  }
  return reports;
}

inline Result<VerifyReport> VerifyInParts(const VerifyOptions& options, uint32_t count) {
  const TempFolder temp;
  PREPACK_TRY_ASSIGN(const std::vector<std::filesystem::path> reports,
                     VerifyParts(options, count, temp.path()));
  Progress progress;
  return MergeVerification(options, reports, progress);
}

// The report as JSON, or the error.
inline std::string TextOf(const Result<VerifyReport>& report) {
  return report.ok() ? VerifyReportJson(*report).dump(1) : report.status().ToString();
}

// Verify, which must say the same where it is done in parts.
inline Result<VerifyReport> VerifyAlsoInParts(const VerifyOptions& options, Progress& progress,
                                              std::initializer_list<uint32_t> counts = {1, 3}) {
  Result<VerifyReport> whole = Verify(options, progress);
  for (const uint32_t count : counts) {
    CAPTURE(count);
    const Result<VerifyReport> together = VerifyInParts(options, count);
    CHECK(TextOf(together) == TextOf(whole));
  }
  return whole;
}

}  // namespace prepack::testing
