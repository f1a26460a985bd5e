#ifndef PREPACK_FORMATS_ACCEPTED_FINDINGS_H_
#define PREPACK_FORMATS_ACCEPTED_FINDINGS_H_

// Findings that end a conversion although what the checkpoint holds means something, and runtimes
// serve it: a user who has looked can accept them by name (--accept).

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/finding.h"

namespace prepack {

// The identifiers that may be accepted.
std::span<const std::string_view> AcceptableFindings();

class AcceptedFindings {
 public:
  // kUsage for a name that may not be accepted; `where` is who says it.
  static Result<AcceptedFindings> Make(std::span<const std::string> names, std::string_view where);

  bool Has(FindingId id) const;
  // Ascending, each once.
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

// While it lives, the modules that this thread describes accept these findings. Must not outlive
// them.
class AcceptanceScope {
 public:
  explicit AcceptanceScope(const AcceptedFindings& accepted);
  ~AcceptanceScope();
  AcceptanceScope(const AcceptanceScope&) = delete;
  AcceptanceScope& operator=(const AcceptanceScope&) = delete;

  // Is it accepted here? Outside any scope nothing is.
  static bool Has(FindingId id);

 private:
  const AcceptedFindings* before_;
};

}  // namespace prepack

#endif  // PREPACK_FORMATS_ACCEPTED_FINDINGS_H_
