#include "formats/module_regex.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "formats/finding.h"
#include "formats/python_regex.h"

namespace prepack {

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

thread_local std::shared_ptr<std::atomic<int64_t>> attempts_left;

}  // namespace

RegexBudget::RegexBudget(int64_t attempts)
    : outer_(std::exchange(attempts_left, std::make_shared<std::atomic<int64_t>>(attempts))) {}

RegexBudget::~RegexBudget() {
  attempts_left = std::move(outer_);
}

struct ModuleRegex::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {
    for (const Effort& effort : kEfforts) limits.push_back(MakeMatchContext(effort.most_steps));
  }

  std::unique_ptr<pcre2_code, regex::Free<pcre2_code_free>> code;
  std::vector<regex::MatchContext> limits;  // as kEfforts
};

ModuleRegex::ModuleRegex(std::shared_ptr<const Code> code, std::string where)
    : code_(std::move(code)), attempts_left_(attempts_left), where_(std::move(where)) {}

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
  if (context == nullptr) return Unsupported(where, "no memory for the pattern");
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
  return ModuleRegex(std::make_shared<const Code>(compiled), std::string(where));
}

bool ModuleRegex::Pay(int64_t attempts) const {
  return attempts_left_ == nullptr || attempts_left_->fetch_sub(attempts) >= attempts;
}

Result<bool> ModuleRegex::Match(std::string_view text, uint32_t options) const {
  const regex::MatchData match(pcre2_match_data_create(1, nullptr));
  int found = PCRE2_ERROR_MATCHLIMIT;
  for (size_t i = 0; i < kEfforts.size() && found == PCRE2_ERROR_MATCHLIMIT; ++i) {
    if (!Pay(kEfforts[i].attempts)) {
      return Unsupported(where_, "the patterns take too long to match, all together")
          .Hint("Use fewer or simpler ones: each is tried on every module")
          .Id(FindingId("config-pattern-slow"));
    }
    found = pcre2_match(code_->code.get(), Units(text), text.size(), 0, options, match.get(),
                        code_->limits[i].get());
  }
  if (found >= 0) return true;
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found <= PCRE2_ERROR_UTF8_ERR1 && found >= PCRE2_ERROR_UTF8_ERR21) {
    return Malformed(where_, "a name that is not UTF-8 cannot be matched").Found(Printable(text));
  }
  return Unsupported(where_, "the pattern takes too long to match")
      .Found(fmt::format("{} on \"{}\"", ErrorText(found), Printable(text)))
      .Hint("Write a simpler pattern: nested repetitions are what makes it slow")
      .Id(FindingId("config-pattern-slow"));
}

Result<bool> ModuleRegex::MatchesStart(std::string_view text) const {
  return Match(text, PCRE2_ANCHORED);
}

Result<bool> ModuleRegex::Search(std::string_view text) const {
  return Match(text, 0);
}

}  // namespace prepack
