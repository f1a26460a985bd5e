#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "check/wide_example.h"
#include "prepack/check/check.h"
#include "prepack/check/parts.h"
#include "prepack/io/file.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {

// "id: where: message", one line each.
inline std::string Lines(const CheckReport& report) {
  std::string lines;
  for (const Finding& finding : report.AllFindings()) {
    lines += std::string(finding.id) + ": " + finding.where + ": " + finding.message + "\n";
  }
  return lines;
}

// Writes the reports of `count` parts into `folder`, and names them.
inline std::vector<std::filesystem::path> CheckParts(const CheckOptions& options, uint32_t count,
                                                     const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> reports;
  for (uint32_t index = 1; index <= count; ++index) {
    Progress progress;
    const PartReport report = Value(CheckPart(options, {.index = index, .count = count}, progress));
    reports.push_back(folder / (std::to_string(index) + ".json"));
    RequireOk(WriteTextFile(reports.back(), report.text));
  }
  return reports;
}

// Check, which must say the same where it is done in parts.
inline Result<CheckReport> CheckAlsoInParts(const CheckOptions& options) {
  Progress progress;
  Result<CheckReport> whole = Check(options, progress);
  if (!whole.ok() || options.headers_only) return whole;
  for (const uint32_t count : {1U, 2U, 3U, 7U}) {
    CAPTURE(count);
    const TempFolder folder;
    const auto reports = CheckParts(options, count, folder.path());
    const CheckReport together = Value(MergeCheck(options, reports, progress));
    CHECK(Lines(together) == Lines(*whole));
    CHECK(together.AllFindings() == whole->AllFindings());
    CHECK(together.verdict == whole->verdict);
    CHECK(CheckHtml(together) == CheckHtml(*whole));
    CHECK(CheckJUnit(together, true) == CheckJUnit(*whole, true));
  }
  return whole;
}

inline CheckReport RunCheck(const TestCheckpoint& checkpoint,
                            const TestCheckpoint* baseline = nullptr, bool headers_only = false,
                            unsigned jobs = 2) {
  const TempFolder folder;
  checkpoint.Write(folder / "source");
  CheckOptions options{
      .source = folder / "source", .baseline = {}, .headers_only = headers_only, .jobs = jobs};
  if (baseline != nullptr) {
    baseline->Write(folder / "baseline");
    options.baseline = folder / "baseline";
  }
  return Value(CheckAlsoInParts(options));
}

inline CheckReport RunHeaderCheck(const TestCheckpoint& checkpoint) {
  return RunCheck(checkpoint, nullptr, true);
}

// Exactly one finding, with this id, and `text` in its line.
inline void RequireOnly(const CheckReport& report, std::string_view id, std::string_view text,
                        CheckVerdict verdict) {
  INFO(Lines(report));
  const std::vector<Finding> findings = report.AllFindings();
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == id);
  CHECK(Lines(report).find(text) != std::string::npos);
  CHECK(CheckVerdictName(report.verdict) == CheckVerdictName(verdict));
}

inline void RequireSound(const CheckReport& report) {
  INFO(Lines(report));
  REQUIRE(report.AllFindings().empty());
  CHECK(report.verdict == CheckVerdict::kSound);
}

}  // namespace prepack::testing
