#ifndef PREPACK_FORMATS_FINDING_H_
#define PREPACK_FORMATS_FINDING_H_

// Something about a checkpoint that the user should know. Every kind of finding has one row in the
// table of finding_kinds.inc, with an identifier that never changes: scripts may rely on it.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/tone.h"

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

  const FindingKind& kind() const { return *kind_; }
  // NOLINTNEXTLINE(google-explicit-constructor): for Status::Id
  operator std::string_view() const { return kind_->id; }

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
};

}  // namespace prepack

#include "formats/finding_kinds.inc"  // IWYU pragma: export

#endif  // PREPACK_FORMATS_FINDING_H_
