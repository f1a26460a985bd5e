#include "prepack/check/finding_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

namespace prepack {
namespace {

const FindingKind& KindOf(const Status& status) {
  const std::span<const FindingKind> kinds = AllFindingKinds();
  const auto it = std::ranges::find(kinds, std::string_view(status.id()), &FindingKind::id);
  if (it != kinds.end()) return *it;
  return (status.kind() == ErrorKind::kUnsupported ? FindingId("unsupported")
                                                   : FindingId("malformed"))
      .kind();
}

std::string MessageOf(const Status& status) {
  std::string message = status.what();
  if (!status.found().empty() && !status.expected().empty()) {
    message += fmt::format(" (found {}, expected {})", status.found(), status.expected());
  } else if (!status.found().empty()) {
    message += fmt::format(" (found {})", status.found());
  } else if (!status.expected().empty()) {
    message += fmt::format(" (expected {})", status.expected());
  }
  if (!status.hint().empty()) message += ". " + status.hint();
  return message;
}

}  // namespace

Finding MakeFinding(FindingId id, std::string_view where, std::string_view message) {
  const FindingKind& kind = id.kind();
  return {.id = kind.id,
          .severity = kind.severity,
          .where = std::string(where),
          .message = std::string(message),
          .hint = kind.hint,
          .more = 0};
}

Finding FindingOf(const Status& status) {
  const FindingKind& kind = KindOf(status);
  return {.id = kind.id,
          .severity = Severity::kError,  // whatever the table says: it stopped the reader
          .where = status.where(),
          .message = MessageOf(status),
          // The advice of the status is closer to the case than that of the table.
          .hint = status.hint().empty() ? kind.hint : std::string_view(),
          .more = 0};
}

void SortBySeverity(std::vector<Finding>& findings) {
  std::ranges::stable_sort(findings, std::greater{}, &Finding::severity);
}

}  // namespace prepack
