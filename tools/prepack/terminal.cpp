#include "terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <utility>

#include "units.h"

namespace prepack::cli {
namespace {

// Empty where it is not set.
std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value(Environment(name));
    if (value.empty()) continue;
    std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::tolower(c); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

size_t TerminalWidth(int file) {
  const std::optional<uint64_t> columns = ParseCount(Environment("COLUMNS"));
  if (columns && *columns != 0) return *columns;
  winsize size{};
  return ioctl(file, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

Display Look(int file) {
  Display display;
  display.is_terminal = isatty(file) == 1;
  if (!display.is_terminal) return display;
  display.colour = Environment("NO_COLOR").empty() && Environment("TERM") != "dumb";
  display.unicode = LocaleIsUtf8();
  display.width = TerminalWidth(file);
  return display;
}

using Displays = std::array<Display, 2>;  // by Stream

Displays& All() {
  static Displays displays = {Look(STDOUT_FILENO), Look(STDERR_FILENO)};
  return displays;
}

std::string_view CodeOf(Tone tone) {
  switch (tone) {
    case Tone::kPlain:
      break;
    case Tone::kGood:
      return "32";
    case Tone::kUnsure:
      return "33";
    case Tone::kBad:
      return "1;31";
  }
  return "";
}

std::string WithCode(std::string_view code, std::string_view text, Stream stream) {
  if (code.empty() || !DisplayOf(stream).colour) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

bool IsContinuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

}  // namespace

void SetColour(std::string_view when) {
  if (when == "auto") return;
  for (Display& display : All()) display.colour = when == "always";
}

const Display& DisplayOf(Stream stream) {
  return All().at(static_cast<size_t>(stream));
}

std::string Paint(Tone tone, std::string_view text, Stream stream) {
  return WithCode(CodeOf(tone), text, stream);
}

std::string PaintTitle(std::string_view text) {
  return WithCode("1", text, Stream::kStdout);
}

size_t Columns(std::string_view text) {
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = std::min(text.find('m', i), text.size());
    } else if (!IsContinuation(text[i])) {
      ++columns;
    }
  }
  return columns;
}

std::string Shortened(std::string_view text, size_t columns) {
  const size_t has = Columns(text);
  if (has <= columns) return std::string(text);
  const size_t kept = columns - std::min<size_t>(columns, 1);  // beside the "…"
  const size_t before = kept / 2;
  const size_t after = has - (kept - before);
  std::string shorter;
  size_t column = 0;  // behind this character
  for (const char c : text) {
    if (!IsContinuation(c)) ++column;
    if (column == before + 1 && !IsContinuation(c)) shorter += "…";
    if (column <= before || column > after) shorter += c;
  }
  return shorter;
}

std::string ToAscii(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kSpellings = {{
      {"×", "x"},
      {"…", "..."},
      {"–", "-"},
      {"−", "-"},
      {"·", "."},
      {"≥", ">="},
      {"≤", "<="},
      {"→", "->"},
      {"⌈", "ceil("},
      {"⌉", ")"},
      {"“", "\""},
      {"”", "\""},
      {"’", "'"},
      {"█", "#"},
  }};
  std::string ascii;
  while (!text.empty()) {
    const auto known = std::ranges::find_if(
        kSpellings, [&](const auto& spelling) { return text.starts_with(spelling.first); });
    const bool is_known = known != kSpellings.end();
    ascii += is_known ? known->second : text.substr(0, 1);
    text.remove_prefix(is_known ? known->first.size() : 1);
  }
  return ascii;
}

}  // namespace prepack::cli
