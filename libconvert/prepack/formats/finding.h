#pragma once

// Something about a checkpoint that the user should know. Every kind of finding has one row in the
// table of finding_kinds.inc, with an identifier that never changes: scripts may rely on it.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/report/page.h"

namespace prepack {

enum class Severity : uint8_t {
  kInfo,     // worth knowing; nothing is wrong
  kWarning,  // suspicious, or other readers will see it otherwise
  kError,    // the checkpoint is broken, contradicts itself, or cannot be read
};

std::string_view SeverityName(Severity severity);  // "info", "warning", "error"
Tone ToneOf(Severity severity);

struct FindingKind {
  std::string_view id;  // "area-what", lower case
  Severity severity = Severity::kInfo;
  std::string_view meaning;  // for docs: what was seen, and why it matters
  std::string_view hint;     // what the user can do; may be empty
};

// The table, sorted by area.
std::span<const FindingKind> AllFindingKinds();

// An identifier of the table. A misspelt literal does not compile.
class FindingId {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a literal is meant to become an identifier
  consteval FindingId(const char* id);

  constexpr const FindingKind& kind() const { return *kind_; }
  // NOLINTNEXTLINE(google-explicit-constructor): for Status::Id
  constexpr operator std::string_view() const { return kind_->id; }

 private:
  const FindingKind* kind_;
};

struct Finding {
  std::string_view id;
  Severity severity = Severity::kInfo;
  std::string where;      // module, tensor or field
  std::string message;    // a sentence, with the numbers
  std::string_view hint;  // may be empty
  uint64_t more = 0;      // how many more places are like it
  bool accepted = false;  // by the user (formats/accepted.h): reported, but no failure

  friend bool operator==(const Finding&, const Finding&) = default;
};

// How reports name its severity: an accepted one is "accepted", whatever it would be otherwise.
std::string_view LabelOf(const Finding& finding);
Tone ToneOf(const Finding& finding);
// Is it an error, or in strict runs a warning, that nobody has accepted?
bool Fails(const Finding& finding, bool strict);

}  // namespace prepack

#include "prepack/formats/finding_kinds.inc"  // IWYU pragma: export

namespace prepack {

// A finding of the table.
Finding MakeFinding(FindingId id, std::string_view where, std::string_view message);

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
