#ifndef PREPACK_CHECK_FINDING_LIST_H_
#define PREPACK_CHECK_FINDING_LIST_H_

#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/finding.h"

namespace prepack {

// A finding of the table.
Finding MakeFinding(FindingId id, std::string_view where, std::string_view message);

// An error as a finding: under the identifier of the status, or "malformed", "unsupported" when it
// has none. What the status found, expected and advises becomes part of the message.
Finding FindingOf(const Status& status);

// Errors first, then warnings, then the rest; otherwise in the order they have.
void SortBySeverity(std::vector<Finding>& findings);

}  // namespace prepack

#endif  // PREPACK_CHECK_FINDING_LIST_H_
