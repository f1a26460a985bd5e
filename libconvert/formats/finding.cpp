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

std::span<const FindingKind> AllFindingKinds() {
  return internal::kFindingKinds;
}

}  // namespace prepack
