#include "formats/python_regex.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <vector>

namespace prepack {

namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kOctalDigits = "01234567";
// The most that PCRE2 repeats.
constexpr uint64_t kMostRepeats = 65'535;
constexpr unsigned kMostOctal = 0377;

bool IsOneOf(char c, std::string_view set) {
  return set.find(c) != std::string_view::npos;
}

// How many characters of `set` the text begins with, `most` at most.
size_t CountOf(std::string_view text, std::string_view set, size_t most = std::string_view::npos) {
  return std::min({text.find_first_not_of(set), text.size(), most});
}

std::string HexEscape(unsigned character) {
  return fmt::format("\\x{:02x}", character);
}

// Goes over a pattern once, from left to right.
class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : rest_(pattern), where_(where) {}

  Result<std::string> Run() {
    while (!rest_.empty()) {
      Status status = in_set_ ? SetMember() : Step();
      if (!status.ok()) return status;
    }
    return std::move(out_);
  }

 private:
  // What a repetition would repeat.
  enum class Last : uint8_t { kNothing, kPlace, kItem, kRepetition };

  Status Step() {
    if (rest_.starts_with("(?")) return Group();
    if (rest_.starts_with("(*")) return NotPython("(*");
    at_start_ = false;
    switch (rest_[0]) {
      case '\\':
        return Escape();
      case '(':
        return Open(1, NewGroup());
      case ')':
        return Close();
      case '|':
        return Item(1, Last::kNothing);
      case '^':
      case '$':
        return Item(1, Last::kPlace);
      case '[':
        return OpenSet();
      case '*':
      case '+':
      case '?':
        return Repetition(1, rest_.substr(0, 1));
      case '{':
        return Brace();
      default:
        return Item(1, Last::kItem);
    }
  }

  Status Item(size_t count, Last last) {
    out_ += rest_.substr(0, count);
    rest_.remove_prefix(count);
    last_ = last;
    return {};
  }

  Status Replace(size_t count, std::string_view by, Last last = Last::kItem) {
    out_ += by;
    rest_.remove_prefix(count);
    last_ = last;
    return {};
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
    if (IsOneOf(c, "AbB")) return Item(2, Last::kPlace);
    if (c == 'Z') return Replace(2, "\\z", Last::kPlace);
    if (c != '0' && IsOneOf(c, kDigits)) return NumberedEscape();
    return CommonEscape();
  }

  // What is the same inside and outside of sets.
  Status CommonEscape() {
    const char c = rest_[1];
    if (c == 'v') return Replace(2, "\\x0b");
    if (c == 'x') return HexadecimalEscape();
    if (c == '0') return OctalEscape(1 + CountOf(rest_.substr(2), kOctalDigits, 2));
    if (IsOneOf(c, "NuU")) return NotRead(rest_.substr(0, 2));
    const bool letter = std::isalpha(static_cast<unsigned char>(c)) != 0;
    if (letter && !IsOneOf(c, "adDsSwWfnrt")) return NotPython(rest_.substr(0, 2));
    return Item(2, Last::kItem);
  }

  // \xhh. PCRE2 also takes fewer digits, and more in braces.
  Status HexadecimalEscape() {
    if (CountOf(rest_.substr(2), "0123456789abcdefABCDEF", 2) < 2) {
      return NotPython(rest_.substr(0, 4));
    }
    return Item(4, Last::kItem);
  }

  Status OctalEscape(size_t digits) {
    unsigned value = 0;
    std::from_chars(rest_.data() + 1, rest_.data() + 1 + digits, value, 8);
    if (value > kMostOctal) return NotPython(rest_.substr(0, 1 + digits));
    return Replace(1 + digits, HexEscape(value));
  }

  // \1 to \99 for a group, and three octal digits for a character. PCRE2 decides by the number of
  // groups.
  Status NumberedEscape() {
    if (CountOf(rest_.substr(1), kOctalDigits, 3) == 3) return OctalEscape(3);
    const size_t digits = CountOf(rest_.substr(1), kDigits, 2);
    size_t number = 0;
    std::from_chars(rest_.data() + 1, rest_.data() + 1 + digits, number);
    return Reference(1 + digits, number);
  }

  // To a group that has ended.
  Status Reference(size_t count, size_t number) {
    const bool is_open = std::ranges::find(open_, number) != open_.end();
    if (number > groups_ || is_open) return NotPython(rest_.substr(0, count));
    return Replace(count, fmt::format("\\g{{{}}}", number));
  }

  Status OpenSet() {
    in_set_ = true;
    out_ += '[';
    rest_.remove_prefix(1);
    if (rest_.starts_with('^')) static_cast<void>(Item(1, Last::kItem));
    // A first ] is a member; [.a.] and the like would be POSIX's.
    if (!rest_.empty() && IsOneOf(rest_[0], "]:.="))
      return Replace(1, fmt::format("\\{}", rest_[0]));
    return {};
  }

  Status SetMember() {
    if (rest_.starts_with("[:") || rest_.starts_with("[.") || rest_.starts_with("[=")) {
      return NotRead(rest_.substr(0, 2));  // POSIX classes to PCRE2, characters to Python
    }
    if (rest_[0] == '\\') return SetEscape();
    in_set_ = rest_[0] != ']';
    return Item(1, Last::kItem);
  }

  Status SetEscape() {
    if (rest_.size() < 2) return NotPython("\\ at the end");
    const char c = rest_[1];
    if (c == 'b') return Item(2, Last::kItem);  // a backspace
    const size_t octal = CountOf(rest_.substr(1), kOctalDigits, 3);
    if (octal > 0) return OctalEscape(octal);
    if (IsOneOf(c, kDigits)) return NotPython(rest_.substr(0, 2));
    return CommonEscape();
  }

  size_t NewGroup() { return ++groups_; }

  // `count` characters that open a group, of this number; 0: of none.
  Status Open(size_t count, size_t number) {
    at_start_ = false;
    open_.push_back(number);
    return Item(count, Last::kNothing);
  }

  Status Close() {
    if (open_.empty()) return NotPython(")");
    open_.pop_back();
    return Item(1, Last::kItem);
  }

  // "(?" with what both engines know: (?: (?= (?! (?<= (?<! (?P<n> (?P=n) (?> (?# and flags.
  Status Group() {
    const std::string_view after = rest_.substr(2);
    if (after.starts_with("#")) return Comment();
    if (after.starts_with("P<")) return NamedGroup();
    if (after.starts_with("P=")) return NamedReference();
    if (after.starts_with("<=") || after.starts_with("<!")) return Open(4, 0);
    if (after.starts_with("(")) return NotRead("(?(");  // names and numbers mean other things
    if (!after.empty() && IsOneOf(after[0], ":=!>")) return Open(3, 0);
    return Flags();
  }

  Status Comment() {
    const size_t end = rest_.find(')');
    if (end == std::string_view::npos) return NotPython("(?#");
    rest_.remove_prefix(end + 1);
    return {};
  }

  // The name in "(?P<name>" or "(?P=name)", of which only the end is checked.
  std::optional<std::string> NameTo(char end) const {
    const size_t at = rest_.find(end, 4);
    if (at == std::string_view::npos) return std::nullopt;
    return std::string(rest_.substr(4, at - 4));
  }

  Status NamedGroup() {
    const std::optional<std::string> name = NameTo('>');
    if (!name) return NotPython("(?P<");
    const size_t number = NewGroup();
    names_.emplace(*name, number);
    return Open(5 + name->size(), number);
  }

  Status NamedReference() {
    at_start_ = false;
    const std::optional<std::string> name = NameTo(')');
    const auto number = name ? names_.find(*name) : names_.end();
    if (number == names_.end()) return NotPython("(?P=");
    return Reference(5 + name->size(), number->second);
  }

  // "(?i)" for the whole pattern, "(?i:" or "(?i-s:" for a group.
  Status Flags() {
    const std::string_view after = rest_.substr(2);
    const size_t on = CountOf(after, "imsxaLu");
    const bool minus = after.substr(on).starts_with("-");
    const size_t off = minus ? CountOf(after.substr(on + 1), "imsx") : 0;
    const size_t end = on + (minus ? 1 + off : 0);
    const char closing = end < after.size() ? after[end] : '\0';
    const std::string_view whole = rest_.substr(0, std::min(rest_.size(), 2 + end + 1));
    // x would make comments of what is translated here; the last three are Python's alone.
    if (after.substr(0, end).find_first_of("xaLu") != std::string_view::npos) return NotRead(whole);
    const bool turned_both_ways =
        after.substr(0, on).find_first_of(after.substr(end - off, off)) != std::string_view::npos;
    if (on + off == 0 || (minus && off == 0) || turned_both_ways) return NotPython(whole);
    if (closing == ':') return Open(whole.size(), 0);
    if (closing != ')' || minus || !at_start_) return NotPython(whole);
    out_ += whole;
    rest_.remove_prefix(whole.size());
    return {};
  }

  // "{2}", "{2,}", "{,2}", "{2,3}", or a brace that stands for itself.
  Status Brace() {
    const std::string_view after = rest_.substr(1);
    const size_t least = CountOf(after, kDigits);
    const bool comma = after.substr(least).starts_with(",");
    const size_t most = comma ? CountOf(after.substr(least + 1), kDigits) : 0;
    const size_t end = least + (comma ? 1 + most : 0);
    if (end == 0 || !after.substr(end).starts_with("}")) return Replace(1, "\\{");
    const uint64_t from = least == 0 ? 0 : NumberIn(after.substr(0, least));
    const uint64_t to = most == 0 ? from : NumberIn(after.substr(least + 1, most));
    const std::string_view whole = rest_.substr(0, 1 + end + 1);
    if (to < from) return NotPython(whole);
    if (to > kMostRepeats) return NotRead(whole);
    const std::string limit = most == 0 ? "" : fmt::format("{}", to);
    return Repetition(whole.size(),
                      comma ? fmt::format("{{{},{}}}", from, limit) : fmt::format("{{{}}}", from));
  }

  // Too many digits are too large a number.
  static uint64_t NumberIn(std::string_view digits) {
    uint64_t number = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return parsed.ec == std::errc() ? number : UINT64_MAX;
  }

  // PCRE2 also repeats places and what is repeated already.
  Status Repetition(size_t count, std::string_view by) {
    if (last_ != Last::kItem) return NotPython(rest_.substr(0, count));
    static_cast<void>(Replace(count, by, Last::kRepetition));
    const bool lazy_or_possessive = rest_.starts_with('?') || rest_.starts_with('+');
    return lazy_or_possessive ? Item(1, Last::kRepetition) : Status();
  }

  std::string_view rest_;
  std::string_view where_;
  std::string out_;
  bool in_set_ = false;
  bool at_start_ = true;  // nothing but flags and comments so far
  Last last_ = Last::kNothing;
  size_t groups_ = 0;         // that have begun
  std::vector<size_t> open_;  // their numbers, 0 for those without
  std::map<std::string, size_t, std::less<>> names_;
};

}  // namespace

Result<std::string> PythonRegexForPcre(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).Run();
}

}  // namespace prepack
