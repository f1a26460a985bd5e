#ifndef PREPACK_FORMATS_AUTO_ROUND_MATCH_H_
#define PREPACK_FORMATS_AUTO_ROUND_MATCH_H_

// Which entry of extra_config describes a module (mirrors auto-round 0.15,
// auto_round/inference/convert_model.py): exact names win; every other key is a regular expression
// that is searched for anywhere in the name, and the first match in the order of the file counts.

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/auto_round/config.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/regex.h"

namespace prepack::auto_round {

// The name without what model classes put in front of it: "model.language_model.layers.0.x" and
// "language_model.model.layers.0.x" are "layers.0.x". Tensors and configs of vision models differ
// there.
std::string_view WithoutModelPrefix(std::string_view name);

class Matcher {
 public:
  // Refers to the config and to the checkpoint of `modules`. Keys that do not compile are skipped,
  // as AutoRound does, and keys that match nothing change nothing: both become findings.
  static Result<Matcher> Make(const Config& config, std::span<const ModuleTensors> modules,
                              FindingTally& findings);

  // What the config says of the module; of one that no entry describes, the scheme of all.
  LayerScheme SchemeOf(std::string_view module) const;
  // The entry, or nullptr. `module` is one of the modules that Make was given.
  const Entry* EntryOf(std::string_view module) const;
  // True when the module lies in a block that is quantized, as far as the config says.
  bool InBlocks(std::string_view module) const;

 private:
  Matcher() = default;

  const Config* config_ = nullptr;
  std::map<std::string_view, const Entry*> entries_;  // by module
};

}  // namespace prepack::auto_round

#endif  // PREPACK_FORMATS_AUTO_ROUND_MATCH_H_
