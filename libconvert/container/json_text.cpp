#include "container/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "container/json.h"

namespace prepack {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr size_t kTextIndent = 2;

// Behind the string that begins at `at`.
size_t EndOfString(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at + 1;
}

// Behind the string, bracket, comma, colon, or word that begins at `at`: a number, true, NaN.
size_t EndOfToken(std::string_view text, size_t at) {
  constexpr std::string_view kMarks = "{}[],:";
  if (text[at] == '"') return EndOfString(text, at);
  if (kMarks.find(text[at]) != kMarks.npos) return at + 1;
  return std::min(text.find_first_of(" \t\r\n{}[],:\"", at), text.size());
}

bool IsOpening(char c) {
  return c == '{' || c == '[';
}
bool IsClosing(char c) {
  return c == '}' || c == ']';
}

// Calls `visit` with every token of the text.
template <typename Visitor>
void ForTokens(std::string_view text, Visitor visit) {
  size_t at = text.find_first_not_of(kSpace);
  while (at < text.size()) {
    const size_t end = std::min(EndOfToken(text, at), text.size());
    visit(text.substr(at, end - at));
    at = text.find_first_not_of(kSpace, end);
  }
}

std::string Decoded(std::string_view string) {
  const Json value = Json::parse(string, nullptr, /*allow_exceptions=*/false);
  return value.is_string() ? value.get<std::string>() : std::string(string);
}

}  // namespace

std::vector<TextMember> TextMembers(std::string_view object) {
  std::vector<TextMember> members;
  size_t depth = 0;
  bool in_value = false;
  ForTokens(object, [&](std::string_view token) {
    const char first = token.front();
    if (IsClosing(first)) --depth;
    const bool at_member = depth == 1;
    if (at_member && first == ',') {
      in_value = false;
    } else if (at_member && first == ':' && !in_value) {
      in_value = true;
    } else if (at_member && !in_value && first == '"') {
      members.push_back({Decoded(token), token, {}});
    } else if (in_value && depth > 0) {
      std::string_view& value = members.back().value;
      if (value.empty()) value = token;
      value = {value.data(), static_cast<size_t>(token.data() + token.size() - value.data())};
    }
    if (IsOpening(first)) ++depth;
  });
  return members;
}

std::string WithoutMember(std::string_view object, std::span<const std::string> path) {
  std::string text = "{";
  for (const TextMember& member : TextMembers(object)) {
    const bool is_meant = member.key == path.front();
    if (is_meant && path.size() == 1) continue;
    const bool inside = is_meant && member.value.starts_with('{');
    fmt::format_to(std::back_inserter(text), "{}{}:{}", text.size() == 1 ? "" : ",",
                   member.key_text,
                   inside ? WithoutMember(member.value, path.subspan(1)) : member.value);
  }
  return text + "}";
}

std::string Reindented(std::string_view value, size_t depth) {
  std::string text;
  char before = ' ';  // first character of the last token
  const auto break_line = [&] {
    text += '\n';
    text.append(kTextIndent * depth, ' ');
  };
  ForTokens(value, [&](std::string_view token) {
    const char first = token.front();
    if (IsClosing(first)) --depth;
    if (IsClosing(first) ? !IsOpening(before) : IsOpening(before) || before == ',') break_line();
    text += token;
    if (first == ':') text += ' ';
    if (IsOpening(first)) ++depth;
    before = first;
  });
  return text;
}

}  // namespace prepack
