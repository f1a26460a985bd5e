#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace prepack {

// Nearly all patterns of configs are characters with `.*` between them: ".*lm_head",
// "model\.layers\.0\..*", ".*mlp.gate$". They need no engine for regular expressions, which takes
// tens of times as long: models have hundreds of thousands of modules, each of which meets every
// pattern.
class SimplePattern {
 public:
  // Nothing where the pattern has anything else, or means something else at the end of a line.
  static std::optional<SimplePattern> Parse(std::string_view pattern);

  // Nothing for a text with line breaks, which `.` does not take, or characters outside ASCII; else
  // as ModuleRegex.
  std::optional<bool> MatchesStart(std::string_view text) const;

 private:
  // Characters that stand side by side; "." may be any.
  struct Piece {
    std::string characters;
    std::vector<bool> is_any;
    bool has_any = false;

    bool IsAt(std::string_view text, size_t at) const;
    size_t FindIn(std::string_view text, size_t from) const;
    void Add(char character, bool any);
  };

  std::vector<Piece> pieces_;  // between `.*`; the first one begins the text
  bool to_end_ = false;        // `$`
};

}  // namespace prepack
