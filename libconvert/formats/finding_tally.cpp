#include "formats/finding_tally.h"

#include <utility>

namespace prepack {

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

}  // namespace prepack
