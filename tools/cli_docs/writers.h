#ifndef PREPACK_TOOLS_CLI_DOCS_WRITERS_H_
#define PREPACK_TOOLS_CLI_DOCS_WRITERS_H_

#include <string>

#include "command_tree.h"

namespace prepack::cli_docs {

// Each gives the text of one file.
std::string BashCompletion(const CommandTree& tree);
std::string ZshCompletion(const CommandTree& tree);
std::string FishCompletion(const CommandTree& tree);
// prepack(1).
std::string ProgramManPage(const CommandTree& tree, const std::string& version);
// prepack-convert(1) and so on.
std::string CommandManPage(const CommandEntry& command, const std::string& version);

// `text` with every character of `special` behind a backslash.
std::string Escaped(const std::string& text, std::string_view special);

}  // namespace prepack::cli_docs

#endif  // PREPACK_TOOLS_CLI_DOCS_WRITERS_H_
