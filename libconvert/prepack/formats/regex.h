#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "prepack/base/status.h"

namespace prepack {

// A pattern of Python's `re` module as one for PCRE2:
//
//     \Z        the very end of the text; PCRE2 spells it \z
//     {,n} {,}  at most n times, any number of times; PCRE2 before 10.43 takes them literally
//     \v        the character; PCRE2 takes it for a class
//     \12       group 12; PCRE2 takes it for a character where there are fewer groups
//
// kMalformed is whatever Python refuses: escapes and groups that only PCRE2 has (\K, \h, \Q, (?|…),
// (?<name>…), (*VERB) …), a repetition of a repetition or of a place (a{2}{3}, ^*), a reference to
// a group that has not ended, a flag that is not at the start, and \x without two digits.
// kUnsupported is what Python has and PCRE2 reads differently: \N{name}, \u, POSIX classes as plain
// characters, conditions, and the flags a, L, u and x. `where` names the place of the pattern.
Result<std::string> PythonRegexForPcre(std::string_view pattern, std::string_view where);

// Regular expressions of quantization configs, matched against module names. The engine is PCRE2,
// which GPTQModel uses too; the other quantizers and vLLM use Python's `re`, and for what stands in
// configs the two agree. Where they do not, the pattern is given Python's meaning or refused.
//
// Patterns and names come from a file. A match that takes more than a bounded number of steps is an
// error, never a "no match"; so is one after all that the patterns of a model may cost together.

// What the patterns that are compiled while one lives, on its thread, may cost together: a config
// can have thousands, and each is tried on every module.
class RegexBudget {
 public:
  // In attempts on a name of the usual kind; slow ones count for many. This many take seconds, or a
  // minute where each is as slow as it may be. Real models need less than a million.
  static constexpr int64_t kAttempts = 50'000'000;

  explicit RegexBudget(int64_t attempts = kAttempts);
  ~RegexBudget();
  RegexBudget(const RegexBudget&) = delete;
  RegexBudget& operator=(const RegexBudget&) = delete;

 private:
  friend class ModuleRegex;

  std::shared_ptr<std::atomic<int64_t>> attempts_left_;
  const RegexBudget* outer_;
};

class ModuleRegex {
 public:
  // `where` names the place of the pattern, for errors. A pattern that does not compile is
  // kMalformed, one that is too long or means different things to the two engines kUnsupported.
  static Result<ModuleRegex> Compile(std::string_view pattern, std::string_view where);

  // Like re.match: the match begins at the start of `text` and may end anywhere. kUnsupported when
  // the pattern takes too many steps. Safe from any thread.
  Result<bool> MatchesStart(std::string_view text) const;
  // Like re.search: the match may begin anywhere.
  Result<bool> Search(std::string_view text) const;

 private:
  struct Code;  // the compiled pattern

  ModuleRegex(std::shared_ptr<const Code> code, std::string where);
  Result<bool> Match(std::string_view text, uint32_t options) const;
  bool Pay(int64_t attempts) const;

  std::shared_ptr<const Code> code_;
  std::shared_ptr<std::atomic<int64_t>> attempts_left_;  // null: no budget
  std::string where_;
};

// Options that are for all modules or for some: `--scheme w4a8`, `--scheme 'mlp=w4a8'`.

// "PATTERN=VALUE" or "VALUE". The last "=" divides the two, as patterns may have some.
struct PatternOption {
  std::string pattern;  // as Python's re.search takes it; empty: every module
  std::string value;
};

// kUsage when there is a "=" without a pattern in front. `option` is its name, for errors.
Result<PatternOption> SplitPatternOption(std::string_view option, std::string_view text);

// The modules that a pattern is found in.
class ModulePattern {
 public:
  // kUsage when it is no regular expression. `option` names the option with its text, for errors.
  static Result<ModulePattern> Make(std::string_view pattern, std::string_view option);

  Result<bool> IsFor(std::string_view module) const;
  bool is_for_all() const { return !regex_.has_value(); }

 private:
  std::optional<ModuleRegex> regex_;
};

}  // namespace prepack
