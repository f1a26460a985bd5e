#ifndef PREPACK_FORMATS_MODULE_PATTERN_H_
#define PREPACK_FORMATS_MODULE_PATTERN_H_

// Options that are for all modules or for some: `--scheme w4a8`, `--scheme 'mlp=w4a8'`.

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/module_regex.h"

namespace prepack {

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

#endif  // PREPACK_FORMATS_MODULE_PATTERN_H_
