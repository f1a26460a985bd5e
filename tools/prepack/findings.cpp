#include "findings.h"

#include <fmt/format.h>

namespace prepack::cli {

namespace {

std::string_view SeverityLabel(Severity severity) {
  return severity == Severity::kInfo ? "note" : SeverityName(severity);
}

}  // namespace

std::string FindingsText(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format(
        "{}: {}: {}{} [{}]\n", SeverityLabel(finding.severity), Printable(finding.where),
        Printable(finding.message, 1000),
        finding.more == 0 ? "" : fmt::format(" (and {} more like it)", finding.more), finding.id);
  }
  return text;
}

}  // namespace prepack::cli
