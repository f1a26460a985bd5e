#include "formats/module_regex_parser.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace prepack {

bool IsRegexWordByte(unsigned char byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
         (byte >= 'A' && byte <= 'Z') || byte == '_';
}

namespace {

constexpr size_t kAsciiCount = 128;

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

template <typename Predicate>
RegexSet SetOf(Predicate predicate) {
  RegexSet set;
  for (size_t byte = 0; byte < kAsciiCount; ++byte) {
    if (predicate(static_cast<unsigned char>(byte))) set.set(byte);
  }
  return set;
}

// The lowest member of a set that has one.
size_t FirstOf(const RegexSet& set) {
  size_t byte = 0;
  while (!set.test(byte)) ++byte;
  return byte;
}

// The set of \d \w \s and their opposites; nullopt for any other letter.
std::optional<RegexSet> ClassEscape(char letter) {
  const auto in_class = [](char lower, unsigned char byte) {
    switch (lower) {
      case 'd':
        return IsDigit(static_cast<char>(byte));
      case 'w':
        return IsRegexWordByte(byte);
      default:  // \s: Python also counts the separators 0x1C to 0x1F as space
        return byte == ' ' || (byte >= '\t' && byte <= '\r') || (byte >= 0x1C && byte <= 0x1F);
    }
  };
  const char lower = static_cast<char>(letter | 0x20);
  if (lower != 'd' && lower != 'w' && lower != 's') return std::nullopt;
  const bool opposite = letter != lower;
  return SetOf([&](unsigned char byte) { return in_class(lower, byte) != opposite; });
}

// The character of \n \t …; nullopt for any other letter.
std::optional<char> CharEscape(char letter) {
  switch (letter) {
    case 'a':
      return '\a';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'v':
      return '\v';
    default:
      return std::nullopt;
  }
}

RegexNode SetNode(RegexSet set) {
  RegexNode node;
  node.kind = RegexNode::Kind::kSet;
  node.set = set;
  return node;
}

RegexNode KindNode(RegexNode::Kind kind) {
  RegexNode node;
  node.kind = kind;
  return node;
}

class Parser {
 public:
  Parser(std::string_view pattern, std::string_view where) : pattern_(pattern), where_(where) {}

  Result<RegexNode> Parse() {
    if (pattern_.size() > kMaxRegexBytes) {
      return Unsupported(where_, "the pattern is too long")
          .Found(fmt::format("{} bytes", pattern_.size()))
          .Expected(fmt::format("at most {}", kMaxRegexBytes));
    }
    for (const char c : pattern_) {
      if (static_cast<unsigned char>(c) >= kAsciiCount) {
        return Refuse("characters outside ASCII");
      }
    }
    Result<RegexNode> node = ParseAlternatives(0);
    if (!node.ok()) return node;
    if (!AtEnd()) return Broken("a closing parenthesis without an opening one");
    return node;
  }

 private:
  bool AtEnd() const { return pos_ == pattern_.size(); }
  char Peek() const { return pattern_[pos_]; }
  bool Take(std::string_view text) {
    if (!pattern_.substr(pos_).starts_with(text)) return false;
    pos_ += text.size();
    return true;
  }

  Status Broken(std::string_view what) const {
    return Malformed(where_,
                     fmt::format("the pattern does not compile: {} at position {}", what, pos_))
        .Found(fmt::format("\"re:{}\"", Printable(pattern_)));
  }
  Status Refuse(std::string_view what) const {
    return Unsupported(where_, fmt::format("the pattern uses {}", what))
        .Found(fmt::format("\"re:{}\"", Printable(pattern_)))
        .Hint("Rewrite the pattern without it");
  }

  Result<RegexNode> ParseAlternatives(size_t depth) {
    if (depth > kMaxRegexDepth) return Refuse("groups that are nested too deeply");
    RegexNode alternatives = KindNode(RegexNode::Kind::kAlternatives);
    do {
      Result<RegexNode> sequence = ParseSequence(depth);
      if (!sequence.ok()) return sequence;
      alternatives.children.push_back(*std::move(sequence));
    } while (Take("|"));
    return alternatives;
  }

  Result<RegexNode> ParseSequence(size_t depth) {
    RegexNode sequence = KindNode(RegexNode::Kind::kSequence);
    while (!AtEnd() && Peek() != '|' && Peek() != ')') {
      if (Take("(?#")) {
        const size_t close = pattern_.find(')', pos_);
        if (close == std::string_view::npos) return Broken("a comment that is not closed");
        pos_ = close + 1;
        continue;
      }
      Result<RegexNode> atom = ParseAtom(depth);
      if (!atom.ok()) return atom;
      atom = ParseRepeat(*std::move(atom));
      if (!atom.ok()) return atom;
      sequence.children.push_back(*std::move(atom));
    }
    return sequence;
  }

  Result<RegexNode> ParseAtom(size_t depth) {
    if (Take("(")) return ParseGroup(depth);
    if (Take("[")) return ParseSet();
    if (Take("\\")) return ParseEscape();
    if (Take("^")) return KindNode(RegexNode::Kind::kTextStart);
    if (Take("$")) return KindNode(RegexNode::Kind::kLineEnd);
    if (Take(".")) return SetNode(SetOf([](unsigned char byte) { return byte != '\n'; }));
    const char c = Peek();
    if (c == '*' || c == '+' || c == '?' || PeekBraces()) return Broken("nothing to repeat");
    ++pos_;
    RegexSet set;
    set.set(static_cast<unsigned char>(c));
    return SetNode(set);
  }

  Result<RegexNode> ParseGroup(size_t depth) {
    bool lookahead = false;
    bool negative = false;
    if (Take("?:")) {
    } else if (Take("?=")) {
      lookahead = true;
    } else if (Take("?!")) {
      lookahead = true;
      negative = true;
    } else if (Take("?P<")) {
      const size_t close = pattern_.find('>', pos_);
      if (close == std::string_view::npos) return Broken("a group name that is not closed");
      pos_ = close + 1;
    } else if (Take("?<=") || Take("?<!")) {
      return Refuse("lookbehind");
    } else if (Take("?P=")) {
      return Refuse("a back-reference");
    } else if (Take("?>")) {
      return Refuse("an atomic group");
    } else if (Take("?(")) {
      return Refuse("a conditional group");
    } else if (Take("?")) {
      return Refuse("flags or an extension of groups");
    }
    Result<RegexNode> inner = ParseAlternatives(depth + 1);
    if (!inner.ok()) return inner;
    if (!Take(")")) return Broken("an opening parenthesis that is not closed");
    if (!lookahead) return inner;
    RegexNode node = KindNode(RegexNode::Kind::kLookahead);
    node.negative = negative;
    node.children.push_back(*std::move(inner));
    return node;
  }

  Result<RegexNode> ParseEscape() {
    if (AtEnd()) return Broken("a backslash at the end");
    const char c = Peek();
    switch (c) {
      case 'A':
        ++pos_;
        return KindNode(RegexNode::Kind::kTextStart);
      case 'Z':
        ++pos_;
        return KindNode(RegexNode::Kind::kTextEnd);
      case 'b':
        ++pos_;
        return KindNode(RegexNode::Kind::kWordBoundary);
      case 'B':
        ++pos_;
        return KindNode(RegexNode::Kind::kNotWordBoundary);
      default:
        break;
    }
    if (IsDigit(c)) return Refuse("a back-reference or an octal escape");
    Result<RegexSet> set = ParseEscapedSet();
    if (!set.ok()) return set.status();
    return SetNode(*set);
  }

  // What follows a backslash, where it stands for characters.
  Result<RegexSet> ParseEscapedSet() {
    const char c = Peek();
    if (const std::optional<RegexSet> escaped_class = ClassEscape(c)) {
      ++pos_;
      return *escaped_class;
    }
    RegexSet set;
    if (const std::optional<char> character = CharEscape(c)) {
      set.set(static_cast<unsigned char>(*character));
    } else if (IsDigit(c) || c == 'x' || c == 'u' || c == 'U' || c == 'N') {
      return Refuse("a numeric or named escape");
    } else if (IsRegexWordByte(static_cast<unsigned char>(c)) && c != '_') {
      return Broken("an escape that does not exist");
    } else {
      set.set(static_cast<unsigned char>(c));
    }
    ++pos_;
    return set;
  }

  // One member of [...]; a single character is a set of one.
  Result<RegexSet> ParseSetMember() {
    if (AtEnd()) return Broken("a set that is not closed");
    if (Take("\\")) {
      if (AtEnd()) return Broken("a backslash at the end");
      if (Take("b")) return RegexSet().set('\b');
      return ParseEscapedSet();
    }
    return RegexSet().set(static_cast<unsigned char>(pattern_[pos_++]));
  }

  Result<RegexNode> ParseSet() {
    const bool opposite = Take("^");
    RegexSet set;
    // A closing bracket that comes first is a member.
    for (bool first = true; first || !Take("]"); first = false) {
      Result<RegexSet> low = ParseSetMember();
      if (!low.ok()) return low.status();
      const std::string_view rest = pattern_.substr(pos_);
      if (rest.size() < 2 || rest[0] != '-' || rest[1] == ']') {
        set |= *low;
        continue;
      }
      ++pos_;
      Result<RegexSet> high = ParseSetMember();
      if (!high.ok()) return high.status();
      if (low->count() != 1 || high->count() != 1) return Broken("a range of classes");
      const size_t first_byte = FirstOf(*low);
      const size_t last_byte = FirstOf(*high);
      if (last_byte < first_byte) return Broken("a range in the wrong order");
      for (size_t byte = first_byte; byte <= last_byte; ++byte) set.set(byte);
    }
    if (opposite) set = SetOf([&](unsigned char byte) { return !set.test(byte); });
    return SetNode(set);
  }

  // True at "{m}", "{m,}", "{,n}", "{m,n}"; any other brace is a literal, as in Python.
  bool PeekBraces() const {
    size_t i = pos_;
    if (i == pattern_.size() || pattern_[i] != '{') return false;
    const size_t first = ++i;
    while (i < pattern_.size() && IsDigit(pattern_[i])) ++i;
    bool some = i > first;
    if (i < pattern_.size() && pattern_[i] == ',') {
      some = true;
      for (++i; i < pattern_.size() && IsDigit(pattern_[i]);) ++i;
    }
    return some && i < pattern_.size() && pattern_[i] == '}';
  }

  // The digits at the current position; nullopt when there are none. Saturates above the limit.
  std::optional<uint32_t> TakeNumber() {
    std::optional<uint32_t> number;
    for (; !AtEnd() && IsDigit(Peek()); ++pos_) {
      const uint32_t next = number.value_or(0) * 10 + static_cast<uint32_t>(Peek() - '0');
      number = next > kMaxRegexRepeat ? kMaxRegexRepeat + 1 : next;
    }
    return number;
  }

  // Wraps `atom` when a repetition follows.
  Result<RegexNode> ParseRepeat(RegexNode atom) {
    RegexNode repeat = KindNode(RegexNode::Kind::kRepeat);
    if (Take("*")) {
      repeat.min = 0;
    } else if (Take("+")) {
      repeat.min = 1;
    } else if (Take("?")) {
      repeat.max = 1;
    } else if (PeekBraces()) {
      ++pos_;
      const std::optional<uint32_t> min = TakeNumber();
      const bool range = Take(",");
      const std::optional<uint32_t> max = TakeNumber();
      ++pos_;
      repeat.min = min.value_or(0);
      repeat.max = range ? max : min;
      if (repeat.min > kMaxRegexRepeat || repeat.max.value_or(0) > kMaxRegexRepeat) {
        return Refuse(fmt::format("more than {} repetitions", kMaxRegexRepeat));
      }
      if (repeat.max && *repeat.max < repeat.min) return Broken("a repetition in the wrong order");
    } else {
      return atom;
    }
    switch (atom.kind) {
      case RegexNode::Kind::kTextStart:
      case RegexNode::Kind::kLineEnd:
      case RegexNode::Kind::kTextEnd:
      case RegexNode::Kind::kWordBoundary:
      case RegexNode::Kind::kNotWordBoundary:
        return Broken("nothing to repeat");
      default:
        break;
    }
    if (!Take("?") && !AtEnd() && Peek() == '+') return Refuse("possessive repetition");
    if (!AtEnd() && (Peek() == '*' || Peek() == '+' || Peek() == '?' || PeekBraces())) {
      return Broken("a repetition of a repetition");
    }
    repeat.children.push_back(std::move(atom));
    return repeat;
  }

  std::string_view pattern_;
  std::string_view where_;
  size_t pos_ = 0;
};

}  // namespace

Result<RegexNode> ParseRegex(std::string_view pattern, std::string_view where) {
  return Parser(pattern, where).Parse();
}

}  // namespace prepack
