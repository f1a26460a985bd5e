#include "prepack/formats/finding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

namespace prepack {

std::string_view SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "";
}

Tone ToneOf(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return Tone::kBad;
    case Severity::kWarning:
      return Tone::kUnsure;
    default:
      return Tone::kPlain;
  }
}

std::span<const FindingKind> AllFindingKinds() {
  return internal::kFindingKinds;
}

void FindingTally::Add(FindingId id, std::string_view where, std::string_view message) {
  const FindingKind& kind = id.kind();
  std::string key(kind.id);
  key += '\n';
  key += message;
  const auto [it, added] = places_.try_emplace(std::move(key), findings_.size());
  if (!added) {
    ++findings_[it->second].more;
    return;
  }
  findings_.push_back({.id = kind.id,
                       .severity = kind.severity,
                       .where = std::string(where),
                       .message = std::string(message),
                       .hint = kind.hint,
                       .more = 0});
}

std::vector<Finding> FindingTally::Take() {
  places_.clear();
  return std::exchange(findings_, {});
}

namespace {

thread_local const AcceptedFindings* accepted_here = nullptr;

}  // namespace

std::span<const std::string_view> AcceptableFindings() {
  static const std::array<std::string_view, 1> acceptable = {FindingId("scale-zero")};
  return acceptable;
}

Result<AcceptedFindings> AcceptedFindings::Make(std::span<const std::string> names,
                                                std::string_view where) {
  AcceptedFindings accepted;
  const std::span<const std::string_view> acceptable = AcceptableFindings();
  for (const std::string& name : names) {
    if (std::ranges::count(acceptable, name) == 0) {
      return Usage(where, "this finding cannot be accepted")
          .Found(Printable(name))
          .Expected(fmt::format("{}", fmt::join(acceptable, ", ")));
    }
    accepted.names_.push_back(name);
  }
  std::ranges::sort(accepted.names_);
  // Not std::ranges::unique: clang 14 cannot compile what libstdc++ 12 returns from it.
  accepted.names_.erase(std::unique(accepted.names_.begin(), accepted.names_.end()),
                        accepted.names_.end());
  return accepted;
}

bool AcceptedFindings::Has(FindingId id) const {
  return std::ranges::count(names_, std::string_view(id)) != 0;
}

AcceptanceScope::AcceptanceScope(const AcceptedFindings& accepted) : before_(accepted_here) {
  accepted_here = &accepted;
}

AcceptanceScope::~AcceptanceScope() {
  accepted_here = before_;
}

bool AcceptanceScope::Has(FindingId id) {
  return accepted_here != nullptr && accepted_here->Has(id);
}

}  // namespace prepack
