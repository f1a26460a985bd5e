#ifndef PREPACK_CONVERT_SCHEME_CHOICE_H_
#define PREPACK_CONVERT_SCHEME_CHOICE_H_

// What the user asks the kernels to compute with: `--scheme w4a8`, `--scheme 'mlp=w4a8'`.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/regex.h"
#include "prepack/model/scheme.h"

namespace prepack {

enum class WantedScheme : uint8_t {
  kAuto,   // what the checkpoint says, as far as CPU kernels do it
  kW4A16,  // 4-bit weights, activations not quantized
  kW4A8,   // 4-bit weights, activations of 8 bits, per token, at run time
  kW8A8,
  kW8A16,
};

// One --scheme option. It speaks of the modules that the pattern is found in.
struct SchemeChoice {
  std::string pattern;  // as Python's re.search takes it; empty: every module
  WantedScheme scheme = WantedScheme::kAuto;

  std::string Text() const;  // as on the command line
};

// "w4a8" or "PATTERN=w4a8"; kUsage when the scheme is unknown.
Result<SchemeChoice> ParseSchemeChoice(std::string_view text);

// What activations a module with such weights is multiplied with, nullopt when the scheme is not
// for weights of this width. kAuto leaves FP8 weights with activations of 16 bits, as every CPU
// kernel for them takes, whatever the checkpoint says.
std::optional<ActivationScheme> ActivationsFor(const Scheme& weights, WantedScheme wanted);

// The options together: the last one that speaks of a module, and is for its weights, decides.
class SchemeChooser {
 public:
  static Result<SchemeChooser> Make(std::span<const SchemeChoice> choices);

  Result<ActivationScheme> ActivationsOf(std::string_view module, const Scheme& weights);
  // kUsage when one of the options was for no module.
  Status CheckAllWereUsed() const;

 private:
  struct Rule {
    SchemeChoice choice;
    ModulePattern modules;
    bool used = false;
  };
  std::vector<Rule> rules_;
};

}  // namespace prepack

#endif  // PREPACK_CONVERT_SCHEME_CHOICE_H_
