#ifndef PREPACK_FORMATS_MODULE_REGEX_PARSER_H_
#define PREPACK_FORMATS_MODULE_REGEX_PARSER_H_

// The syntax of Python's `re` module, as far as it can be matched in time linear in the text:
// literals, `.`, sets, \d \w \s and their opposites, ^ $ \A \Z \b \B, groups (named ones too),
// alternatives, repetition (greedy or lazy: the same when one only asks whether there is a match),
// and lookahead. Lookbehind, back-references, flags, conditionals, atomic groups and possessive
// repetition are kUnsupported; what Python would not compile is kMalformed.

#include <bitset>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace prepack {

using RegexSet = std::bitset<256>;  // members by byte; only ASCII ones are ever set

// One node of the syntax tree.
struct RegexNode {
  enum class Kind : uint8_t {
    kSet,              // one character of `set`
    kSequence,         // all `children`, in order; none of them: the empty text
    kAlternatives,     // one of `children`
    kRepeat,           // children[0], `min` to `max` times
    kTextStart,        // ^ \A
    kLineEnd,          // $: the end, or a newline that ends the text
    kTextEnd,          // \Z
    kWordBoundary,     // \b
    kNotWordBoundary,  // \B
    kLookahead,        // children[0] matches from here (or not, when `negative`)
  };

  Kind kind = Kind::kSequence;
  RegexSet set{};
  uint32_t min = 0;
  std::optional<uint32_t> max;  // nullopt: no limit
  bool negative = false;
  std::vector<RegexNode> children{};
};

// Far above what configurations hold; they bound the time of parsing and matching.
inline constexpr size_t kMaxRegexBytes = 1024;
inline constexpr size_t kMaxRegexDepth = 32;
inline constexpr uint32_t kMaxRegexRepeat = 1000;

// True for the characters of \w.
bool IsRegexWordByte(unsigned char byte);

// `where` names the place of the pattern, for errors.
Result<RegexNode> ParseRegex(std::string_view pattern, std::string_view where);

}  // namespace prepack

#endif  // PREPACK_FORMATS_MODULE_REGEX_PARSER_H_
