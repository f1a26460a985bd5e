#include "formats/finding.h"

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

}  // namespace prepack
