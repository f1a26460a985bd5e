#include "io/escape.h"

#include "base/status.h"

namespace prepack {
namespace {

// The entity that stands for a character of XML's markup; empty: it stands for itself.
std::string_view XmlEntity(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    default:
      return "";
  }
}

// What GitHub's Markdown may take as markup inside a line. Only what can be: names of modules and
// numbers stay readable where nobody renders them.
bool NeedsBackslash(char c) {
  constexpr std::string_view kMarkup = "\\`*[]~$#";
  return kMarkup.find(c) != std::string_view::npos;
}

bool IsWord(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// There, an underscore is no emphasis.
bool IsInsideWord(std::string_view text, size_t index) {
  return index != 0 && index + 1 < text.size() && IsWord(text[index - 1]) &&
         IsWord(text[index + 1]);
}

}  // namespace

std::string EscapeXml(std::string_view text, size_t max_bytes) {
  constexpr std::string_view kNoCharacter = "\xEF\xBF";  // U+FFFE and U+FFFF, with one more byte
  const std::string printable = Printable(text, max_bytes);
  std::string escaped;
  for (size_t i = 0; i < printable.size(); ++i) {
    const std::string_view entity = XmlEntity(printable[i]);
    if (!entity.empty()) {
      escaped += entity;
    } else if (printable.compare(i, 2, kNoCharacter) == 0 &&
               static_cast<unsigned char>(printable[i + 2]) >= 0xBE) {
      escaped += "\xEF\xBF\xBD";
      i += 2;
    } else {
      escaped += printable[i];
    }
  }
  return escaped;
}

std::string EscapeMarkdown(std::string_view text, size_t max_bytes) {
  const std::string printable = Printable(text, max_bytes);
  const std::string_view view = printable;
  std::string escaped;
  for (size_t i = 0; i < view.size(); ++i) {
    const char c = view[i];
    const std::string_view entity = XmlEntity(c);
    if (!entity.empty()) {
      escaped += entity;
    } else if (c == '|') {
      escaped += "&#124;";  // a backslash before it would depend on what stands around the cell
    } else if (view.substr(i).starts_with("://")) {
      escaped += "&#58;";  // else it is a link
    } else if (c == '.' && view.substr(0, i).ends_with("www")) {
      escaped += "&#46;";
    } else {
      if (NeedsBackslash(c) || (c == '_' && !IsInsideWord(view, i)) ||
          (i == 0 && (c == '+' || c == '-'))) {
        escaped += '\\';
      }
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace prepack
