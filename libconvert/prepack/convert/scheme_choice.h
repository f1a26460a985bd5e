#pragma once

// The arithmetic that the user wants: `--scheme w4a8`, `--scheme 'mlp=w4a8'`.

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/regex.h"
#include "prepack/layouts/table.h"
#include "prepack/model/scheme.h"

namespace prepack {

// One --scheme option. It speaks of the modules that the pattern is found in.
struct SchemeChoice {
  std::string pattern;  // as Python's re.search takes it; empty: every module
  WantedScheme scheme = WantedScheme::kAuto;

  std::string Text() const;  // as on the command line
};

// "w4a8" or "PATTERN=w4a8"; kUsage when the scheme is unknown.
Result<SchemeChoice> ParseSchemeChoice(std::string_view text);

// A file of choices, one a line, in their order. Lines that begin with # are comments: those of
// `prepack tune` say what the choices were made from.
struct SchemeFile {
  std::vector<SchemeChoice> choices;
  std::vector<std::string> comments;  // without the #; empty ones left out
};

// kUsage names the line that cannot be read, and a file without choices.
Result<SchemeFile> ReadSchemeFile(const std::filesystem::path& path);

// What the kernel of a module is to multiply.
struct Arithmetic {
  ActivationScheme activations = {};
  bool in_bf16 = false;  // weights as those of an unquantized layer, instead of codes

  friend bool operator==(const Arithmetic&, const Arithmetic&) = default;
};

// The options together: the last one that speaks of a module, and is for its weights, decides.
class SchemeChooser {
 public:
  static Result<SchemeChooser> Make(std::span<const SchemeChoice> choices, const Target& target);

  Result<Arithmetic> ArithmeticOf(std::string_view module, const Scheme& weights);
  // kUsage when one of the options was for no module.
  Status CheckAllWereUsed() const;

 private:
  struct Rule {
    SchemeChoice choice;
    ModulePattern modules;
    bool used = false;
  };
  // What the checkpoint says, but for experts that the target runs with 8-bit activations only.
  std::optional<ActivationScheme> ByDefault(std::string_view module, const Scheme& weights) const;

  std::vector<Rule> rules_;
  bool eight_bit_experts_ = false;
  bool eight_bit_int8_experts_ = false;
};

}  // namespace prepack
