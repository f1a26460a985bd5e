#ifndef PREPACK_FORMATS_FINDING_TALLY_H_
#define PREPACK_FORMATS_FINDING_TALLY_H_

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/format.h"

namespace prepack {

// Collects findings of a reader. What is true of thousands of modules becomes one finding, which
// names the first of them and counts the others.
class FindingTally {
 public:
  // `message` must be the same text for all that belong together.
  void Add(std::string_view where, std::string_view message);

  // In the order in which they first came.
  std::vector<Finding> Take();

 private:
  std::vector<Finding> findings_;
  std::vector<size_t> more_;                        // how many more like findings_[i]
  std::unordered_map<std::string, size_t> places_;  // message → index into findings_
};

}  // namespace prepack

#endif  // PREPACK_FORMATS_FINDING_TALLY_H_
