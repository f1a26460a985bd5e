#include "findings.h"

#include <fmt/format.h>

#include "terminal.h"

namespace prepack::cli {

std::string FindingsText(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    const Severity severity = finding.severity;
    text += fmt::format(
        "{}: {}: {}{} [{}]\n",
        Paint(ToneOf(severity), severity == Severity::kInfo ? "note" : SeverityName(severity)),
        Printable(finding.where), Printable(finding.message, 1000),
        finding.more == 0 ? "" : fmt::format(" (and {} more like it)", finding.more), finding.id);
  }
  return text;
}

std::string ApartText(const std::map<std::string, std::string>& apart) {
  std::map<std::string, std::pair<std::string, size_t>> reasons;  // → first module, how many
  for (const auto& [module, why] : apart) {
    ++reasons.try_emplace(why, module, size_t{0}).first->second.second;
  }
  std::string text;
  for (const auto& [why, modules] : reasons) {
    const auto& [first, count] = modules;
    text += fmt::format("  not fused: {} ({}{})\n", why, Printable(first),
                        count == 1 ? "" : fmt::format(" and {} more", count - 1));
  }
  return text;
}

}  // namespace prepack::cli
