#include "prepack/formats/finding.h"

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

std::string_view LabelOf(const Finding& finding) {
  return finding.accepted ? "accepted" : SeverityName(finding.severity);
}

Tone ToneOf(const Finding& finding) {
  return finding.accepted ? Tone::kPlain : ToneOf(finding.severity);
}

bool Fails(const Finding& finding, bool strict) {
  if (finding.accepted) return false;
  return finding.severity == Severity::kError || (strict && finding.severity == Severity::kWarning);
}

std::span<const FindingKind> AllFindingKinds() {
  return internal::kFindingKinds;
}

Finding MakeFinding(FindingId id, std::string_view where, std::string_view message) {
  const FindingKind& kind = id.kind();
  return {.id = kind.id,
          .severity = kind.severity,
          .where = std::string(where),
          .message = std::string(message),
          .hint = kind.hint,
          .more = 0,
          .accepted = false};
}

void FindingTally::Add(FindingId id, std::string_view where, std::string_view message) {
  std::string key(id.kind().id);
  key += '\n';
  key += message;
  const auto [it, added] = places_.try_emplace(std::move(key), findings_.size());
  if (added) {
    findings_.push_back(MakeFinding(id, where, message));
  } else {
    ++findings_[it->second].more;
  }
}

std::vector<Finding> FindingTally::Take() {
  places_.clear();
  return std::exchange(findings_, {});
}

}  // namespace prepack
