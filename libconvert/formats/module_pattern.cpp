#include "formats/module_pattern.h"

#include <utility>

namespace prepack {

Result<PatternOption> SplitPatternOption(std::string_view option, std::string_view text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string_view::npos)
    return PatternOption{.pattern = "", .value = std::string(text)};
  if (equals == 0) {
    return Usage(std::string(option), "there is no pattern in front of \"=\"").Found(text);
  }
  return PatternOption{.pattern = std::string(text.substr(0, equals)),
                       .value = std::string(text.substr(equals + 1))};
}

Result<ModulePattern> ModulePattern::Make(std::string_view pattern, std::string_view option) {
  ModulePattern made;
  if (pattern.empty()) return made;
  Result<ModuleRegex> regex = ModuleRegex::Compile(pattern, option);
  // What a pattern of a file would make malformed is a mistake of the user here.
  if (!regex.ok()) return Usage(std::string(option), regex.status().ToString());
  made.regex_ = *std::move(regex);
  return made;
}

Result<bool> ModulePattern::IsFor(std::string_view module) const {
  if (is_for_all()) return true;
  return regex_->Search(module);
}

}  // namespace prepack
