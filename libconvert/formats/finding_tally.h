#ifndef PREPACK_FORMATS_FINDING_TALLY_H_
#define PREPACK_FORMATS_FINDING_TALLY_H_

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/finding.h"

namespace prepack {

// Collects findings. What is true of thousands of modules becomes one finding, which names the
// first of them and counts the others.
class FindingTally {
 public:
  // Places with the same id and the same message belong together.
  void Add(FindingId id, std::string_view where, std::string_view message);

  // In the order in which they first came.
  std::vector<Finding> Take();

 private:
  std::vector<Finding> findings_;
  std::unordered_map<std::string, size_t> places_;  // id and message → index into findings_
};

}  // namespace prepack

#endif  // PREPACK_FORMATS_FINDING_TALLY_H_
