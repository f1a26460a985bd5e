#ifndef PREPACK_FORMATS_MODULE_REGEX_H_
#define PREPACK_FORMATS_MODULE_REGEX_H_

// Regular expressions of quantization configs, matched against module names.
//
// Goals: the answers of Python's re.match, because that is what the quantizer used; time bounded
// by pattern × text, because both come from a file. Backtracking matchers, std::regex among them,
// take exponential time on (a|a)*b and recurse per character. Here all ways to match advance
// together, one character at a time (Thompson's construction).
// Non-goals: captures, searching, anything outside ASCII.

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/module_regex_parser.h"

namespace prepack {

class ModuleRegex {
 public:
  // `where` names the place of the pattern, for errors. See module_regex_parser.h for the syntax.
  static Result<ModuleRegex> Compile(std::string_view pattern, std::string_view where);

  // Like re.match: the match begins at the start of `text` and may end anywhere.
  bool MatchesStart(std::string_view text) const;

 private:
  friend class RegexCompiler;
  friend class RegexRun;

  enum class Op : uint8_t {
    kSet,        // consume one character of sets[a], go on at the next instruction
    kSplit,      // go on at a and at b
    kJump,       // go on at a
    kAssert,     // go on when `assertion` holds here
    kLookahead,  // go on at b when the program at the next instruction matches (or not) from here;
                 // a numbers the lookaheads
    kMatch,
  };
  struct Instruction {
    Op op = Op::kMatch;
    RegexNode::Kind assertion = RegexNode::Kind::kTextStart;
    bool negative = false;
    uint32_t a = 0;
    uint32_t b = 0;
  };

  ModuleRegex() = default;

  std::vector<Instruction> program_;
  std::vector<RegexSet> sets_;
  uint32_t lookaheads_ = 0;
};

}  // namespace prepack

#endif  // PREPACK_FORMATS_MODULE_REGEX_H_
