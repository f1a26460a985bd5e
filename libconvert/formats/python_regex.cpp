#include "formats/python_regex.h"

#include <fmt/format.h>

#include <cctype>

namespace prepack {

namespace {

// Goes over a pattern once, from left to right.
class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : rest_(pattern), where_(where) {}

  Result<std::string> Run() {
    while (!rest_.empty()) {
      Status status = Step();
      if (!status.ok()) return status;
    }
    return std::move(out_);
  }

 private:
  Status Step() {
    if (rest_[0] == '\\') return Escape();
    if (in_set_) return SetMember();
    if (rest_.starts_with("(?")) return Group();
    if (rest_.starts_with("(*")) return NotPython("(*");
    if (rest_.starts_with("{,")) return OpenRepeat();
    if (rest_[0] == '[') return OpenSet();
    Take(1);
    return {};
  }

  void Take(size_t count) {
    out_ += rest_.substr(0, count);
    rest_.remove_prefix(count);
  }

  void Replace(size_t count, std::string_view by) {
    out_ += by;
    rest_.remove_prefix(count);
  }

  Status NotPython(std::string_view what) const {
    return Malformed(where_, "the pattern does not compile in Python").Found(Printable(what));
  }

  Status NotRead(std::string_view what) const {
    return Unsupported(where_, "the pattern has a construct that is not read")
        .Found(Printable(what))
        .Hint("Put the names of the modules into the config instead");
  }

  Status Escape() {
    if (rest_.size() < 2) return NotPython("\\ at the end");
    const char c = rest_[1];
    if (std::isalpha(static_cast<unsigned char>(c)) == 0) {
      Take(2);  // punctuation, octal numbers and back-references
      return {};
    }
    if (c == 'Z' && !in_set_) {
      Replace(2, "\\z");
    } else if (c == 'v') {
      Replace(2, "\\x0b");
    } else if (c == 'N' || c == 'u' || c == 'U') {
      return NotRead(rest_.substr(0, 2));
    } else if (std::string_view(in_set_ ? "abdDsSwWfnrtx" : "AabBdDsSwWfnrtx").find(c) !=
               std::string_view::npos) {
      Take(2);
    } else {
      return NotPython(rest_.substr(0, 2));
    }
    return {};
  }

  Status OpenSet() {
    in_set_ = true;
    Take(rest_.starts_with("[^") ? 2 : 1);
    if (rest_.starts_with("]")) Replace(1, "\\]");  // the first one is a member
    return {};
  }

  Status SetMember() {
    if (rest_.starts_with("[:") || rest_.starts_with("[.") || rest_.starts_with("[=")) {
      return NotRead(rest_.substr(0, 2));  // POSIX classes to PCRE2, characters to Python
    }
    in_set_ = rest_[0] != ']';
    Take(1);
    return {};
  }

  // "(?" with what both engines know: (?: (?= (?! (?<= (?<! (?P<n> (?P=n) (?> (?# (?(1) and flags.
  Status Group() {
    constexpr std::string_view kKnown = ":=!>#(";
    const std::string_view after = rest_.substr(2);
    const bool known = !after.empty() && (kKnown.find(after[0]) != std::string_view::npos ||
                                          after.starts_with("<=") || after.starts_with("<!") ||
                                          after.starts_with("P<") || after.starts_with("P="));
    const bool flags =
        !after.empty() && std::string_view("imsx-").find(after[0]) != std::string_view::npos;
    if (after.starts_with("a") || after.starts_with("L") || after.starts_with("u")) {
      return NotRead(rest_.substr(0, 3));  // flags of Python alone
    }
    if (!known && !flags) return NotPython(rest_.substr(0, 3));
    if (after.starts_with("#")) {
      const size_t end = rest_.find(')');
      if (end == std::string_view::npos) return NotPython("(?#");
      rest_.remove_prefix(end + 1);
      return {};
    }
    Take(2);
    return {};
  }

  // "{,n}", or a brace that stands for itself.
  Status OpenRepeat() {
    const size_t end = rest_.find_first_not_of("0123456789", 2);
    const bool repeats = end != std::string_view::npos && rest_[end] == '}';
    Replace(1, repeats ? "{0" : "\\{");
    return {};
  }

  std::string_view rest_;
  std::string_view where_;
  std::string out_;
  bool in_set_ = false;
};

}  // namespace

Result<std::string> PythonRegexForPcre(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).Run();
}

}  // namespace prepack
