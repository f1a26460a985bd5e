#pragma once

#include <string_view>

namespace prepack::testing {

// What no name may get into a page.
inline constexpr std::string_view kMarkup = "<b>&\"'</b>";
inline constexpr std::string_view kEscaped = "&lt;b&gt;&amp;&quot;'&lt;/b&gt;";

}  // namespace prepack::testing
