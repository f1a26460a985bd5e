#ifndef PREPACK_TOOLS_TERMINAL_H_
#define PREPACK_TOOLS_TERMINAL_H_

// What stdout and stderr can show: colours, characters beyond ASCII, and how many columns.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/tone.h"

namespace prepack::cli {

struct Display {
  bool is_terminal = false;
  bool colour = false;
  // False only for a terminal in another charset than UTF-8: files and pipes get UTF-8.
  bool unicode = true;
  size_t width = 0;  // columns; 0: no limit
};

enum class Stream : uint8_t { kStdout, kStderr };

// --color: "always", "never", or "auto", by which a terminal has colours unless NO_COLOR is set (to
// anything) or TERM is "dumb". What was shown before is not changed.
void SetColour(std::string_view when);

// As the stream, the environment (NO_COLOR, TERM, COLUMNS, LC_ALL, LC_CTYPE, LANG) and SetColour
// say.
const Display& DisplayOf(Stream stream);

// `text` in the colour of its tone, where the stream has colours.
std::string Paint(Tone tone, std::string_view text, Stream stream = Stream::kStdout);
// The head of a table, for stdout.
std::string PaintTitle(std::string_view text);

// Columns that UTF-8 text takes, as far as we write it: colours take none.
size_t Columns(std::string_view text);
// `text`, with its middle left out for "…" when it takes more columns. It must have no colours.
std::string Shortened(std::string_view text, size_t columns);
// What we write beyond ASCII, in ASCII: "×" is "x". Other characters stay as they are.
std::string ToAscii(std::string_view text);

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_TERMINAL_H_
