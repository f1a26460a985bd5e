#pragma once

// --accept ID[=PATTERN]: findings that the user knows about. They are reported, but fail nothing.
//
// `check` reports what it finds, so any kind of finding may be accepted there. A conversion ends at
// the first error, and only what still has a meaning, and what runtimes serve, can be packed
// nevertheless: those kinds are few (ConvertibleFindings).

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/finding.h"

namespace prepack {

enum class AcceptedBy : uint8_t { kCheck, kConversion };

// The identifiers that a conversion can accept.
std::span<const std::string_view> ConvertibleFindings();

// Copies share what was found.
class AcceptedFindings {
 public:
  AcceptedFindings() = default;
  // `texts` are "ID" or "ID=PATTERN"; the pattern is one of Python's `re` that is searched in names
  // of modules and tensors. kUsage for an identifier that does not exist or that `by` cannot
  // accept, and for a pattern that is none; `where` is who says it.
  static Result<AcceptedFindings> Make(std::span<const std::string> texts, AcceptedBy by,
                                       std::string_view where);

  // As given; ascending, each once.
  const std::vector<std::string>& texts() const;
  bool empty() const { return state_ == nullptr; }

  // Is the finding accepted in one of these places? Says that it was found where it is. The second
  // name may be empty. The error of a pattern that takes too many steps. Safe from any thread.
  Result<bool> Accepts(std::string_view id, std::string_view name, std::string_view other) const;
  // Marks it if it is. What stands for more than one place is accepted without a pattern only: the
  // names of the other places are not known any more. `module`: it belongs to this one; may be
  // empty.
  Status Mark(Finding& finding, std::string_view module) const;

  // Those of `texts` that have accepted nothing so far.
  std::vector<std::string> Unused() const;

  // A reader went on in spite of the finding, about `module`; one of each kind per module is kept.
  // Safe from any thread.
  void Note(std::string_view module, Finding finding) const;
  // What was noted, ascending by module.
  std::vector<std::pair<std::string, Finding>> Noted() const;

 private:
  struct State;

  std::shared_ptr<State> state_;  // null: nothing is accepted
};

// While it lives, the modules that this thread describes accept these findings.
class AcceptanceScope {
 public:
  explicit AcceptanceScope(AcceptedFindings accepted);
  ~AcceptanceScope();
  AcceptanceScope(const AcceptanceScope&) = delete;
  AcceptanceScope& operator=(const AcceptanceScope&) = delete;

  // Outside any scope nothing is accepted.
  static AcceptedFindings Here();

 private:
  AcceptedFindings accepted_;
  const AcceptedFindings* before_;
};

// A finding of the kind "accept-unused" for each of `Unused`.
std::vector<Finding> UnusedAcceptances(const AcceptedFindings& accepted);

}  // namespace prepack
