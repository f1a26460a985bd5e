#pragma once

// The JSON that writers of checkpoints write, and nothing else: strings of printable ASCII without
// escapes, and integers from 0 on. Headers and index of half a million tensors are 130 MB of it,
// which a parser of all JSON takes a second for. Whatever is not so plain is left to that parser,
// and so are all errors: a scan that has failed says nothing but that the text has to be parsed.

#include <cstdint>
#include <optional>
#include <string_view>

namespace prepack {

class PlainJson {
 public:
  explicit PlainJson(std::string_view text) : text_(text) {}

  // Takes the character, and space in front of it, if it comes next.
  bool Take(char wanted) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  // A string, as it stands in the text.
  std::optional<std::string_view> String() {
    if (!Take('"')) return std::nullopt;
    const size_t end = text_.find('"', at_);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view string = text_.substr(at_, end - at_);
    if (!IsPlain(string)) return std::nullopt;
    at_ = end + 1;
    return string;
  }

  std::optional<uint64_t> Number() {
    constexpr size_t kMostDigits = 19;  // of which every number fits
    SkipSpace();
    const size_t start = at_;
    uint64_t number = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      number = number * 10 + static_cast<uint64_t>(text_[at_] - '0');
    }
    const size_t digits = at_ - start;
    const bool is_number = digits != 0 && digits <= kMostDigits;
    if (!is_number || (digits > 1 && text_[start] == '0')) return std::nullopt;
    return number;
  }

  bool AtEnd() {
    SkipSpace();
    return at_ == text_.size();
  }

  // Behind what was taken last.
  size_t offset() const { return at_; }

 private:
  void SkipSpace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  // Without a branch, so that it is done by vectors.
  static bool IsPlain(std::string_view string) {
    unsigned other = 0;
    for (const char c : string) {
      const auto code = static_cast<unsigned char>(c);
      other |= static_cast<unsigned>(code < 0x20) | static_cast<unsigned>(code >= 0x7F) |
               static_cast<unsigned>(c == '\\');
    }
    return other == 0;
  }

  std::string_view text_;
  size_t at_ = 0;
};

// Takes an object, member by member: `member(key)` takes the value, or fails.
template <typename Member>
bool TakeObject(PlainJson& json, const Member& member) {
  if (!json.Take('{')) return false;
  if (json.Take('}')) return true;
  do {
    const std::optional<std::string_view> key = json.String();
    if (!key || !json.Take(':') || !member(*key)) return false;
  } while (json.Take(','));
  return json.Take('}');
}

// Takes an array of numbers: `number(value)` takes one, or fails.
template <typename Element>
bool TakeNumbers(PlainJson& json, const Element& element) {
  if (!json.Take('[')) return false;
  if (json.Take(']')) return true;
  do {
    const std::optional<uint64_t> number = json.Number();
    if (!number || !element(*number)) return false;
  } while (json.Take(','));
  return json.Take(']');
}

}  // namespace prepack
