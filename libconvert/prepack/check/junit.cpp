#include "prepack/check/junit.h"

#include <fmt/format.h>

#include <utility>

#include "prepack/report/junit_xml.h"

namespace prepack {
namespace {

bool IsFailure(const Finding& finding, bool strict) {
  return finding.severity == Severity::kError || (strict && finding.severity == Severity::kWarning);
}

std::string Line(const Finding& finding) {
  std::string line = fmt::format("{} [{}] {}: {}", SeverityName(finding.severity), finding.id,
                                 finding.where, finding.message);
  if (finding.more != 0) line += fmt::format(" (and {} more like it)", finding.more);
  return line;
}

JUnitCase TestCase(std::string name, const std::vector<Finding>& findings, bool looked_at,
                   bool strict) {
  JUnitCase test;
  test.class_name = "prepack.check";
  test.name = std::move(name);
  for (const Finding& finding : findings) {
    if (!IsFailure(finding, strict)) {
      test.output.push_back(Line(finding));
      continue;
    }
    if (!test.failure) {
      test.failure = {.type = std::string(finding.id), .message = finding.message, .lines = {}};
    }
    test.failure->lines.push_back(Line(finding));
  }
  if (!test.failure && !looked_at) test.skipped = "the data was not read";
  return test;
}

}  // namespace

std::string CheckJUnit(const CheckReport& report, bool strict) {
  JUnitSuite suite{.name = "prepack check " + report.source, .cases = {}};
  for (const ModuleCheck& module : report.modules) {
    suite.cases.push_back(
        TestCase(module.module, module.findings, module.statistics.has_value(), strict));
  }
  std::string whole = NameOfWhole("checkpoint", suite.cases);
  suite.cases.insert(suite.cases.begin(),
                     TestCase(std::move(whole), report.findings, true, strict));
  return JUnitXml({&suite, 1});
}

}  // namespace prepack
