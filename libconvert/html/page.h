#ifndef PREPACK_HTML_PAGE_H_
#define PREPACK_HTML_PAGE_H_

// Reports as one self-contained page: nothing is loaded from elsewhere, it is readable in light and
// dark, prints, and works without its script, which only sorts and searches tables.
//
// All functions here escape the text that they are given; what is called `html` is put in as it is.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/tone.h"

namespace prepack {

// A whole document.
std::string HtmlPage(std::string_view title, std::string_view html);

// A heading and what belongs to it; empty when that is empty.
std::string HtmlSection(std::string_view heading, std::string_view html);

// The same, closed until its heading is clicked.
std::string HtmlFoldedSection(std::string_view heading, std::string_view html);

// Where a report comes from: names and values, those without a value left out.
std::string HtmlFacts(const std::vector<std::pair<std::string_view, std::string>>& facts);

// A list of sentences; empty without any.
std::string HtmlList(const std::vector<std::string>& sentences);

// Words in the colour of what they mean.
std::string_view ToneClass(Tone tone);  // of the style sheet
std::string HtmlToned(Tone tone, std::string_view text);

}  // namespace prepack

#endif  // PREPACK_HTML_PAGE_H_
