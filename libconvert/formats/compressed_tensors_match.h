#ifndef PREPACK_FORMATS_COMPRESSED_TENSORS_MATCH_H_
#define PREPACK_FORMATS_COMPRESSED_TENSORS_MATCH_H_

// Which config group describes a module (mirrors compressed-tensors 0.19, utils/match.py).
//
// The quantizer's rule is the truth: exact names win over regular expressions, these win over
// class names, and inside one kind the target that comes first in the alphabet wins. vLLM 0.32
// (utils/config_utils.py) takes names and expressions in the order of the config instead; where
// that selects another scheme, the user should know.

#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "formats/compressed_tensors_config.h"

namespace prepack {

class CtMatcher {
 public:
  // Refers to `config`, which must live longer.
  explicit CtMatcher(const CtConfig& config);

  // The group of a module, or nullptr; the ignore list is not consulted. Here and below, an error
  // is that of a regular expression which takes too long.
  Result<const CtGroup*> GroupOf(std::string_view module, ModuleClass module_class) const;
  // The same by vLLM's order.
  Result<const CtGroup*> GroupOfVllm(std::string_view module, ModuleClass module_class) const;
  Result<bool> Ignored(std::string_view module, ModuleClass module_class) const;

 private:
  struct Target {
    const ConfigPattern* pattern;
    const CtGroup* group;
  };

  // The first that matches, or nullptr.
  static Result<const CtGroup*> GroupByName(std::span<const Target> targets,
                                            std::string_view module);
  static const CtGroup* GroupByClass(std::span<const Target> targets, ModuleClass module_class);

  std::vector<Target> targets_;  // in the order of the config, each text once
  std::unordered_map<std::string_view, const CtGroup*> names_;
  std::vector<Target> regexes_;  // alphabetical
  std::vector<Target> classes_;  // alphabetical
  std::unordered_set<std::string_view> ignored_names_;
  std::vector<const ConfigPattern*> ignored_regexes_;
  std::vector<const ConfigPattern*> ignored_classes_;
};

}  // namespace prepack

#endif  // PREPACK_FORMATS_COMPRESSED_TENSORS_MATCH_H_
