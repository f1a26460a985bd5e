#include "prepack/formats/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/simple_pattern.h"

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
      PREPACK_TRY(in_set_ ? SetMember() : Step());
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
    return Unsupported(where_, "the pattern uses a construct that prepack does not support")
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
    // A first ] is a member; [.a.] and so on would be POSIX's.
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
    return ParseUint(digits).value_or(UINT64_MAX);
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

// Not without a name: ModuleRegex::Code, which others can see, is made of these.
namespace regex {

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;

}  // namespace regex

namespace {

// Real patterns have some dozens of characters.
constexpr size_t kMaxPatternBytes = 4096;
constexpr size_t kMaxPatternDepth = 64;
// A match is tried with few steps of the engine first, so that what it costs is known. ".*"
// patterns on names of 100 characters take some hundred; with the most steps one still ends within
// a millisecond.
struct Effort {
  uint32_t most_steps;
  int64_t attempts;  // of RegexBudget
};
constexpr std::array kEfforts = {Effort{128, 1}, Effort{2048, 16}, Effort{50'000, 400}};
constexpr uint32_t kMaxHeapKiB = 4096;
// Characters, not bytes, with the classes of Unicode, as in Python. That bytes are UTF-8 is
// checked: PCRE2_MATCH_INVALID_UTF would let an anchored match begin behind bytes that are not.
constexpr uint32_t kCharacters = PCRE2_UTF | PCRE2_UCP;

PCRE2_SPTR Units(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

std::string ErrorText(int error) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(error, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// Limits that Python has not, or has elsewhere.
bool IsLimit(int error) {
  constexpr std::array kLimits = {
      PCRE2_ERROR_QUANTIFIER_TOO_BIG,         PCRE2_ERROR_PARENTHESES_NEST_TOO_DEEP,
      PCRE2_ERROR_PATTERN_TOO_LARGE,          PCRE2_ERROR_SUBPATTERN_NAME_TOO_LONG,
      PCRE2_ERROR_LOOKBEHIND_TOO_COMPLICATED, PCRE2_ERROR_LOOKBEHIND_NOT_FIXED_LENGTH};
  return std::ranges::find(kLimits, error) != kLimits.end();
}

regex::MatchContext MakeMatchContext(uint32_t most_steps) {
  regex::MatchContext context(pcre2_match_context_create(nullptr));
  if (context == nullptr) return context;
  pcre2_set_match_limit(context.get(), most_steps);
  pcre2_set_heap_limit(context.get(), kMaxHeapKiB);
  return context;
}

thread_local const RegexBudget* budget = nullptr;

}  // namespace

RegexBudget::RegexBudget(int64_t attempts)
    : attempts_left_(std::make_shared<std::atomic<int64_t>>(attempts)),
      outer_(std::exchange(budget, this)) {}

RegexBudget::~RegexBudget() {
  budget = outer_;
}

struct ModuleRegex::Code {
  Code(pcre2_code* compiled, std::string_view pattern)
      : code(compiled), simple(SimplePattern::Parse(pattern)) {
    for (const Effort& effort : kEfforts) limits.push_back(MakeMatchContext(effort.most_steps));
  }

  std::unique_ptr<pcre2_code, regex::Free<pcre2_code_free>> code;
  std::vector<regex::MatchContext> limits;  // as kEfforts
  std::optional<SimplePattern> simple;      // the same without the engine, where that can be
};

ModuleRegex::ModuleRegex(std::shared_ptr<const Code> code, std::string where)
    : code_(std::move(code)),
      attempts_left_(budget == nullptr ? nullptr : budget->attempts_left_),
      where_(std::move(where)) {}

Result<ModuleRegex> ModuleRegex::Compile(std::string_view pattern, std::string_view where) {
  if (pattern.size() > kMaxPatternBytes) {
    return Unsupported(where, "the pattern is too long")
        .Found(fmt::format("{} bytes", pattern.size()))
        .Expected(fmt::format("at most {}", kMaxPatternBytes))
        .Id(FindingId("config-pattern-invalid"));
  }
  const Result<std::string> translated = PythonRegexForPcre(pattern, where);
  if (!translated.ok()) return Status(translated.status()).Id(FindingId("config-pattern-invalid"));

  const regex::CompileContext context(pcre2_compile_context_create(nullptr));
  if (context == nullptr) return Unsupported(where, "not enough memory for the pattern");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), kMaxPatternDepth);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* compiled = pcre2_compile(Units(*translated), translated->size(), kCharacters, &error,
                                       &offset, context.get());
  if (compiled == nullptr) {
    if (IsLimit(error)) {
      return Unsupported(where, "the pattern is too large")
          .Found(fmt::format("\"{}\": {}", Printable(pattern), ErrorText(error)))
          .Id(FindingId("config-pattern-invalid"));
    }
    return Malformed(where, "the pattern does not compile")
        .Found(fmt::format("\"{}\": {}", Printable(pattern), ErrorText(error)))
        .Id(FindingId("config-pattern-invalid"));
  }
  return ModuleRegex(std::make_shared<const Code>(compiled, pattern), std::string(where));
}

bool ModuleRegex::Pay(int64_t attempts) const {
  return attempts_left_ == nullptr || attempts_left_->fetch_sub(attempts) >= attempts;
}

Result<bool> ModuleRegex::Match(std::string_view text, uint32_t options) const {
  const regex::MatchData match(pcre2_match_data_create(1, nullptr));
  int found = PCRE2_ERROR_MATCHLIMIT;
  for (size_t i = 0; i < kEfforts.size() && found == PCRE2_ERROR_MATCHLIMIT; ++i) {
    if (!Pay(kEfforts[i].attempts)) {
      return Unsupported(where_, "all patterns together take too long to match")
          .Hint("Use fewer or simpler patterns: prepack tries each of them on every module")
          .Id(FindingId("config-pattern-slow"));
    }
    found = pcre2_match(code_->code.get(), Units(text), text.size(), 0, options, match.get(),
                        code_->limits[i].get());
  }
  if (found >= 0) return true;
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found <= PCRE2_ERROR_UTF8_ERR1 && found >= PCRE2_ERROR_UTF8_ERR21) {
    return Malformed(where_, "the name is not UTF-8, so patterns cannot match it")
        .Found(Printable(text));
  }
  return Unsupported(where_, "the pattern takes too long to match")
      .Found(fmt::format("{} on \"{}\"", ErrorText(found), Printable(text)))
      .Hint("Write a simpler pattern: nested repetitions make it slow")
      .Id(FindingId("config-pattern-slow"));
}

Result<bool> ModuleRegex::MatchesStart(std::string_view text) const {
  const std::optional<bool> simple =
      code_->simple ? code_->simple->MatchesStart(text) : std::nullopt;
  if (simple && Pay(kEfforts.front().attempts)) return *simple;
  return Match(text, PCRE2_ANCHORED);
}

Result<bool> ModuleRegex::Search(std::string_view text) const {
  return Match(text, 0);
}

Result<PatternOption> SplitPatternOption(std::string_view option, std::string_view text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string_view::npos)
    return PatternOption{.pattern = "", .value = std::string(text)};
  if (equals == 0) {
    return Usage(std::string(option), "the pattern before \"=\" is missing").Found(text);
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
