#ifndef PREPACK_FORMATS_MODULE_REGEX_H_
#define PREPACK_FORMATS_MODULE_REGEX_H_

// Regular expressions of quantization configs, matched against module names. The engine is PCRE2,
// which GPTQModel uses too; the other quantizers and vLLM use Python's `re`, and for what stands in
// configs the two agree. Where they do not, the pattern is given Python's meaning or refused.
//
// Patterns and names come from a file. A match that takes more than a bounded number of steps is an
// error, never a "no match".

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace prepack {

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

  std::shared_ptr<const Code> code_;
  std::string where_;
};

}  // namespace prepack

#endif  // PREPACK_FORMATS_MODULE_REGEX_H_
