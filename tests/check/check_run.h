#ifndef PREPACK_TESTS_CHECK_CHECK_RUN_H_
#define PREPACK_TESTS_CHECK_CHECK_RUN_H_

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "check/wide_example.h"
#include "prepack/check/check.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {

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
  Progress progress;
  return Value(Check(options, progress));
}

inline CheckReport RunHeaderCheck(const TestCheckpoint& checkpoint) {
  return RunCheck(checkpoint, nullptr, true);
}

// "id: where: message", one line each.
inline std::string Lines(const CheckReport& report) {
  std::string lines;
  for (const Finding& finding : report.AllFindings()) {
    lines += std::string(finding.id) + ": " + finding.where + ": " + finding.message + "\n";
  }
  return lines;
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

#endif  // PREPACK_TESTS_CHECK_CHECK_RUN_H_
