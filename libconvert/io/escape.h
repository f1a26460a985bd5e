#ifndef PREPACK_IO_ESCAPE_H_
#define PREPACK_IO_ESCAPE_H_

// Text from a checkpoint or a user, as it may stand in a report. Control characters and bytes that
// are not UTF-8 are shown as \xNN, so that no line can be broken and no terminal be driven.

#include <cstddef>
#include <string>
#include <string_view>

namespace prepack {

// As text or in a quoted attribute, of XML 1.0 and of HTML. XML has no way to write most control
// characters and U+FFFE and U+FFFF, not even escaped: the latter become U+FFFD.
std::string EscapeXml(std::string_view text, size_t max_bytes = SIZE_MAX);

// As text of GitHub-flavoured Markdown, at the start of a list item, behind other text or in a cell
// of a table: nothing in it is markup, a link or the end of the cell.
std::string EscapeMarkdown(std::string_view text, size_t max_bytes = 200);

}  // namespace prepack

#endif  // PREPACK_IO_ESCAPE_H_
