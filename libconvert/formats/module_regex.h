#ifndef PREPACK_FORMATS_MODULE_REGEX_H_
#define PREPACK_FORMATS_MODULE_REGEX_H_

// Regular expressions of quantization configs, matched against module names. The engine is PCRE2,
// which GPTQModel uses too; the other quantizers and vLLM use Python's `re`, and for what stands in
// configs the two agree. Where they do not, the pattern is given Python's meaning or refused.
//
// Patterns and names come from a file. A match that takes more than a bounded number of steps is an
// error, never a "no match"; so is one after all that the patterns of a model may cost together.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace prepack {

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
  std::shared_ptr<std::atomic<int64_t>> outer_;
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

}  // namespace prepack

#endif  // PREPACK_FORMATS_MODULE_REGEX_H_
