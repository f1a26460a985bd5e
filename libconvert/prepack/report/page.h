#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace prepack {

// What a word says of the state of things. Pages and terminals show each in a colour of its own;
// a verdict has its ToneOf where it is declared.
enum class Tone : uint8_t { kPlain, kGood, kBad, kUnsure };

// Text from a checkpoint or a user, as it may stand in a report. Control characters and bytes that
// are not UTF-8 are shown as \xNN, so that no line can be broken and no terminal be driven.

// As text or in a quoted attribute, of XML 1.0 and of HTML. XML has no way to write most control
// characters and U+FFFE and U+FFFF, not even escaped: the latter become U+FFFD.
std::string EscapeXml(std::string_view text, size_t max_bytes = SIZE_MAX);

// As text of GitHub-flavoured Markdown, at the start of a list item, behind other text or in a cell
// of a table: nothing in it is markup, a link or the end of the cell.
std::string EscapeMarkdown(std::string_view text, size_t max_bytes = 200);

// Reports as one self-contained page: nothing is loaded from elsewhere, it is readable in light and
// dark, prints, and works without its script, which only sorts and searches tables.
//
// All functions here escape the text that they are given; what is called `html` is put in as it is.

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
