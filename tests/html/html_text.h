#ifndef PREPACK_TESTS_HTML_HTML_TEXT_H_
#define PREPACK_TESTS_HTML_HTML_TEXT_H_

#include <cstddef>
#include <string_view>

namespace prepack::testing {

// What no name may get into a page.
inline constexpr std::string_view kMarkup = "<b>&\"'</b>";
inline constexpr std::string_view kEscaped = "&lt;b&gt;&amp;&quot;'&lt;/b&gt;";

inline size_t CountOf(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

inline bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace prepack::testing

#endif  // PREPACK_TESTS_HTML_HTML_TEXT_H_
