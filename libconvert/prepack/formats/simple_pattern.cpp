#include "prepack/formats/simple_pattern.h"

#include <algorithm>

namespace prepack {
namespace {

constexpr std::string_view kRepeats = "*+?{";

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

}  // namespace

void SimplePattern::Piece::Add(char character, bool any) {
  characters += character;
  is_any.push_back(any);
  has_any = has_any || any;
}

bool SimplePattern::Piece::IsAt(std::string_view text, size_t at) const {
  if (at > text.size() || characters.size() > text.size() - at) return false;
  if (!has_any) return text.substr(at, characters.size()) == characters;
  for (size_t i = 0; i < characters.size(); ++i) {
    if (!is_any[i] && text[at + i] != characters[i]) return false;
  }
  return true;
}

// npos if it is nowhere.
size_t SimplePattern::Piece::FindIn(std::string_view text, size_t from) const {
  if (!has_any) return text.find(characters, from);
  for (size_t at = from; at + characters.size() <= text.size(); ++at) {
    if (IsAt(text, at)) return at;
  }
  return std::string_view::npos;
}

std::optional<SimplePattern> SimplePattern::Parse(std::string_view pattern) {
  SimplePattern simple;
  simple.pieces_.emplace_back();
  if (pattern.starts_with('^')) pattern.remove_prefix(1);
  if (pattern.ends_with('$') && !pattern.ends_with("\\$")) {
    simple.to_end_ = true;
    pattern.remove_suffix(1);
  }
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool escaped = pattern[i] == '\\' && i + 1 < pattern.size() && pattern[i + 1] == '.';
    if (escaped) ++i;
    const bool any = pattern[i] == '.' && !escaped;
    if (!any && !escaped && !IsPlain(pattern[i])) return std::nullopt;
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : 'a';
    if (any && next == '*') {
      ++i;
      // What follows may make it another repetition: `.*?`, `.*+`.
      if (i + 1 < pattern.size() && kRepeats.find(pattern[i + 1]) != kRepeats.npos) {
        return std::nullopt;
      }
      simple.pieces_.emplace_back();
      continue;
    }
    if (kRepeats.find(next) != kRepeats.npos) return std::nullopt;
    simple.pieces_.back().Add(pattern[i], any);
  }
  return simple;
}

std::optional<bool> SimplePattern::MatchesStart(std::string_view text) const {
  const auto is_usual = [](char c) { return static_cast<unsigned char>(c) < 0x80 && c != '\n'; };
  if (!std::ranges::all_of(text, is_usual)) return std::nullopt;
  const Piece& first = pieces_.front();
  if (!first.IsAt(text, 0)) return false;
  size_t at = first.characters.size();
  if (pieces_.size() == 1) return !to_end_ || at == text.size();
  // Each piece in the first place where it fits leaves the most for those behind it; the last one
  // stands at the end if that is asked for.
  const size_t found_anywhere = pieces_.size() - (to_end_ ? 1 : 0);
  for (size_t i = 1; i < found_anywhere; ++i) {
    const size_t place = pieces_[i].FindIn(text, at);
    if (place == std::string_view::npos) return false;
    at = place + pieces_[i].characters.size();
  }
  if (!to_end_) return true;
  const size_t length = pieces_.back().characters.size();
  return text.size() - at >= length && pieces_.back().IsAt(text, text.size() - length);
}

}  // namespace prepack
