#include "formats/finding_tally.h"

#include <fmt/format.h>

#include <utility>

namespace prepack {

void FindingTally::Add(std::string_view where, std::string_view message) {
  const auto [it, added] = places_.try_emplace(std::string(message), findings_.size());
  if (added) {
    findings_.push_back({std::string(where), std::string(message)});
    more_.push_back(0);
  } else {
    ++more_[it->second];
  }
}

std::vector<Finding> FindingTally::Take() {
  for (size_t i = 0; i < findings_.size(); ++i) {
    if (more_[i] > 0) findings_[i].message += fmt::format(" (and {} more like it)", more_[i]);
  }
  more_.clear();
  places_.clear();
  return std::exchange(findings_, {});
}

}  // namespace prepack
