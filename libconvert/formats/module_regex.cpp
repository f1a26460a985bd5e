#include "formats/module_regex.h"

#include <fmt/format.h>

#include <utility>

namespace prepack {

namespace {

// Instructions that a pattern may take, and steps to write them: {1000}{1000} is refused, not
// expanded.
constexpr size_t kMaxSteps = 4096;

}  // namespace

// Turns a syntax tree into a program.
class RegexCompiler {
 public:
  using Op = ModuleRegex::Op;

  // False when the program gets too long.
  bool Compile(const RegexNode& root) {
    Emit(root);
    Add(Op::kMatch);
    return !overflow_;
  }
  ModuleRegex Take() { return std::move(regex_); }

 private:
  uint32_t Here() const { return static_cast<uint32_t>(regex_.program_.size()); }
  ModuleRegex::Instruction& At(uint32_t index) { return regex_.program_[index]; }

  uint32_t Add(Op op) {
    regex_.program_.push_back({.op = op});
    return Here() - 1;
  }

  void Emit(const RegexNode& node) {
    // Counted here too, because repeating the empty text writes no instruction.
    if (++steps_ > kMaxSteps || regex_.program_.size() > kMaxSteps) overflow_ = true;
    if (overflow_) return;
    switch (node.kind) {
      case RegexNode::Kind::kSet:
        At(Add(Op::kSet)).a = static_cast<uint32_t>(regex_.sets_.size());
        regex_.sets_.push_back(node.set);
        break;
      case RegexNode::Kind::kSequence:
        for (const RegexNode& child : node.children) Emit(child);
        break;
      case RegexNode::Kind::kAlternatives:
        EmitAlternatives(node);
        break;
      case RegexNode::Kind::kRepeat:
        EmitRepeat(node);
        break;
      case RegexNode::Kind::kLookahead: {
        const uint32_t look = Add(Op::kLookahead);
        At(look).a = regex_.lookaheads_++;
        At(look).negative = node.negative;
        Emit(node.children[0]);
        Add(Op::kMatch);
        At(look).b = Here();
        break;
      }
      default:
        At(Add(Op::kAssert)).assertion = node.kind;
        break;
    }
  }

  void EmitAlternatives(const RegexNode& node) {
    std::vector<uint32_t> ends;
    for (size_t i = 0; i < node.children.size() && !overflow_; ++i) {
      const bool last = i + 1 == node.children.size();
      const uint32_t split = last ? 0 : Add(Op::kSplit);
      Emit(node.children[i]);
      if (last) break;
      ends.push_back(Add(Op::kJump));
      At(split).a = split + 1;
      At(split).b = Here();
    }
    for (const uint32_t end : ends) At(end).a = Here();
  }

  void EmitRepeat(const RegexNode& node) {
    const RegexNode& child = node.children[0];
    for (uint32_t i = 0; i < node.min && !overflow_; ++i) Emit(child);
    if (!node.max) {
      const uint32_t loop = Add(Op::kSplit);
      Emit(child);
      At(Add(Op::kJump)).a = loop;
      At(loop).a = loop + 1;
      At(loop).b = Here();
      return;
    }
    std::vector<uint32_t> exits;
    for (uint32_t i = node.min; i < *node.max && !overflow_; ++i) {
      exits.push_back(Add(Op::kSplit));
      Emit(child);
    }
    for (const uint32_t exit : exits) {
      At(exit).a = exit + 1;
      At(exit).b = Here();
    }
  }

  ModuleRegex regex_;
  size_t steps_ = 0;
  bool overflow_ = false;
};

// One match of a program against one text.
class RegexRun {
 public:
  using Op = ModuleRegex::Op;

  RegexRun(const ModuleRegex& regex, std::string_view text)
      : regex_(regex), text_(text), looked_(regex.lookaheads_ * (text.size() + 1), kUnknown) {}

  // True when the program that starts at `start` matches from position `pos`.
  bool Matches(uint32_t start, size_t pos) {
    Threads now(regex_.program_.size());
    Threads next(regex_.program_.size());
    if (Follow(start, pos, now)) return true;
    for (; pos < text_.size() && !now.waiting.empty(); ++pos) {
      const auto byte = static_cast<unsigned char>(text_[pos]);
      next.Clear();
      for (const uint32_t at : now.waiting) {
        if (regex_.sets_[regex_.program_[at].a].test(byte) && Follow(at + 1, pos + 1, next)) {
          return true;
        }
      }
      std::swap(now, next);
    }
    return false;
  }

 private:
  enum Looked : int8_t { kUnknown, kNo, kYes };

  // The instructions reached at one position.
  struct Threads {
    explicit Threads(size_t instructions) : seen(instructions, 0) {}
    void Clear() {
      ++round;
      waiting.clear();
    }

    std::vector<uint32_t> waiting;  // those that want a character
    std::vector<size_t> seen;       // round in which an instruction was reached
    size_t round = 1;
  };

  // Adds all that is reachable from `start` without consuming a character. True on a match.
  bool Follow(uint32_t start, size_t pos, Threads& threads) {
    std::vector<uint32_t> open = {start};
    while (!open.empty()) {
      const uint32_t at = open.back();
      open.pop_back();
      if (threads.seen[at] == threads.round) continue;
      threads.seen[at] = threads.round;
      const ModuleRegex::Instruction& instruction = regex_.program_[at];
      switch (instruction.op) {
        case Op::kSet:
          threads.waiting.push_back(at);
          break;
        case Op::kSplit:
          open.push_back(instruction.b);
          open.push_back(instruction.a);
          break;
        case Op::kJump:
          open.push_back(instruction.a);
          break;
        case Op::kAssert:
          if (Holds(instruction.assertion, pos)) open.push_back(at + 1);
          break;
        case Op::kLookahead:
          if (Look(at, pos) != instruction.negative) open.push_back(instruction.b);
          break;
        case Op::kMatch:
          return true;
      }
    }
    return false;
  }

  // Remembered per position, so that lookahead costs at most one run from each. Recursion is as
  // deep as lookaheads are nested, which the parser bounds.
  bool Look(uint32_t at, size_t pos) {
    int8_t& known = looked_[regex_.program_[at].a * (text_.size() + 1) + pos];
    if (known == kUnknown) known = Matches(at + 1, pos) ? kYes : kNo;
    return known == kYes;
  }

  bool WordAt(size_t pos) const {
    return pos < text_.size() && IsRegexWordByte(static_cast<unsigned char>(text_[pos]));
  }

  bool Holds(RegexNode::Kind assertion, size_t pos) const {
    switch (assertion) {
      case RegexNode::Kind::kTextStart:
        return pos == 0;
      case RegexNode::Kind::kTextEnd:
        return pos == text_.size();
      case RegexNode::Kind::kLineEnd:
        return pos == text_.size() || (pos + 1 == text_.size() && text_[pos] == '\n');
      default: {
        const bool boundary = (pos > 0 && WordAt(pos - 1)) != WordAt(pos);
        return boundary == (assertion == RegexNode::Kind::kWordBoundary);
      }
    }
  }

  const ModuleRegex& regex_;
  std::string_view text_;
  std::vector<int8_t> looked_;
};

Result<ModuleRegex> ModuleRegex::Compile(std::string_view pattern, std::string_view where) {
  const Result<RegexNode> tree = ParseRegex(pattern, where);
  if (!tree.ok()) return tree.status();
  RegexCompiler compiler;
  if (!compiler.Compile(*tree)) {
    return Unsupported(where, "the pattern repeats too much")
        .Found(fmt::format("\"re:{}\"", Printable(pattern)))
        .Expected(fmt::format("at most {} characters when repetitions are written out", kMaxSteps));
  }
  return compiler.Take();
}

bool ModuleRegex::MatchesStart(std::string_view text) const {
  return RegexRun(*this, text).Matches(0, 0);
}

}  // namespace prepack
