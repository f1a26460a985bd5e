#ifndef PREPACK_FORMATS_MODULE_MATCH_H_
#define PREPACK_FORMATS_MODULE_MATCH_H_

// Which modules an entry of a quantization config means (mirrors compressed-tensors 0.19,
// utils/match.py, and what AutoRound and GPTQModel share with it).
//
//   "re:.*q_proj"    a regular expression, anchored at the start only: takes a.q_proj_extra, too
//   "model.lm_head"  this name, exactly; nothing below it, and case matters
//   "Linear"         the class of the module; a file holds no classes, so callers say which class a
//                    module must have had, see ModuleClass

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/module_regex.h"

namespace prepack {

// Longer names are refused by the readers: no model has them, and they would make matching slow.
inline constexpr size_t kMaxModuleNameBytes = 512;

// The class that a module with a weight matrix had when it was quantized, as far as its name tells.
enum class ModuleClass : uint8_t { kLinear, kEmbedding };

ModuleClass ClassOfModule(std::string_view module);

// One entry.
class ConfigPattern {
 public:
  enum class Kind : uint8_t { kName, kRegex };

  // `where` names the place of the entry, for errors.
  static Result<ConfigPattern> Parse(std::string_view text, std::string_view where);

  // The entry as it stands in the config, "re:" included.
  const std::string& text() const { return text_; }
  Kind kind() const { return regex_ ? Kind::kRegex : Kind::kName; }

  // An error when a regular expression takes too long on this name.
  Result<bool> MatchesName(std::string_view module) const {
    return regex_ ? regex_->MatchesStart(module) : Result<bool>(text_ == module);
  }
  bool MatchesClass(ModuleClass module_class) const;
  // True for an entry that can only be the name of a class: it has no dot, as no layer of a
  // transformer lies at the top, and begins with a capital letter.
  bool LooksLikeClass() const;

 private:
  ConfigPattern(std::string text, std::optional<ModuleRegex> regex);

  std::string text_;
  std::optional<ModuleRegex> regex_;
};

// kUnsupported when the patterns above cannot be applied to a name: too long or not ASCII.
Status CheckModuleName(std::string_view module);

}  // namespace prepack

#endif  // PREPACK_FORMATS_MODULE_MATCH_H_
