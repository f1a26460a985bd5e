#include "check/junit.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "io/file.h"
#include "io/posix.h"

namespace prepack {
namespace {

// XML 1.0 has no way to write most control characters, not even escaped: Printable shows them as
// \xNN, together with what is not UTF-8.
std::string Escape(std::string_view text) {
  std::string escaped;
  for (const char c : Printable(text, SIZE_MAX)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

bool IsFailure(const Finding& finding, bool strict) {
  return finding.severity == Severity::kError || (strict && finding.severity == Severity::kWarning);
}

struct TestCase {
  std::string name;
  const std::vector<Finding>* findings = nullptr;
  bool skipped = false;

  size_t Failures(bool strict) const {
    return static_cast<size_t>(std::ranges::count_if(
        *findings, [&](const Finding& finding) { return IsFailure(finding, strict); }));
  }
};

// One line per finding that is a failure, or that is none.
std::string Lines(const std::vector<Finding>& findings, bool strict, bool failures) {
  std::string lines;
  for (const Finding& finding : findings) {
    if (IsFailure(finding, strict) != failures) continue;
    lines += Escape(fmt::format("{} [{}] {}: {}", SeverityName(finding.severity), finding.id,
                                finding.where, finding.message));
    if (finding.more != 0) lines += fmt::format(" (and {} more like it)", finding.more);
    lines += "\n";
  }
  return lines;
}

std::string CaseXml(const TestCase& test, bool strict) {
  std::string xml =
      fmt::format("    <testcase classname=\"prepack.check\" name=\"{}\">\n", Escape(test.name));
  if (const size_t failures = test.Failures(strict); failures != 0) {
    const auto first = std::ranges::find_if(
        *test.findings, [&](const Finding& finding) { return IsFailure(finding, strict); });
    xml += fmt::format("      <failure type=\"{}\" message=\"{}\">{}</failure>\n", first->id,
                       Escape(first->message), Lines(*test.findings, strict, true));
  } else if (test.skipped) {
    xml += "      <skipped message=\"the data was not read\"/>\n";
  }
  if (const std::string notes = Lines(*test.findings, strict, false); !notes.empty()) {
    xml += fmt::format("      <system-out>{}</system-out>\n", notes);
  }
  return xml + "    </testcase>\n";
}

}  // namespace

std::string CheckJUnit(const CheckReport& report, bool strict) {
  std::vector<TestCase> cases = {
      {.name = "checkpoint", .findings = &report.findings, .skipped = false}};
  for (const ModuleCheck& module : report.modules) {
    cases.push_back({.name = module.module,
                     .findings = &module.findings,
                     .skipped = !module.statistics.has_value()});
  }
  size_t failures = 0;
  size_t skipped = 0;
  std::string body;
  for (const TestCase& test : cases) {
    const bool failed = test.Failures(strict) != 0;
    failures += failed ? 1 : 0;
    skipped += !failed && test.skipped ? 1 : 0;
    body += CaseXml(test, strict);
  }
  const std::string counts = fmt::format("tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\"",
                                         cases.size(), failures, skipped);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {}>\n"
      "  <testsuite name=\"{}\" {}>\n{}  </testsuite>\n</testsuites>\n",
      counts, Escape("prepack check " + report.source), counts, body);
}

Status WriteFileAtomically(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path name = path.filename();
  if (name.empty()) return Usage(path.string(), "not the name of a file");
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const std::filesystem::path partial = folder / fmt::format(".{}.prepack-partial", name.string());
  int result = posix::RemoveTree(partial);
  if (result < 0) return SystemError(partial.string(), "cannot remove it", -result);
  Status status = WriteTextFile(partial, text);
  if (status.ok()) {
    result = posix::Rename(partial, path);
    if (result < 0) status = SystemError(path.string(), "cannot write it", -result);
  }
  if (!status.ok()) {
    (void)posix::RemoveTree(partial);
    return status;
  }
  return SyncFolder(folder);
}

}  // namespace prepack
