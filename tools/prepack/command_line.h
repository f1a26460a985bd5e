#ifndef PREPACK_TOOLS_COMMAND_LINE_H_
#define PREPACK_TOOLS_COMMAND_LINE_H_

#include <CLI/CLI.hpp>

#include "command.h"

namespace prepack::cli {

// The whole command line: the program parses with it; completions and man pages are made from it.
// `exit_code` must outlive the app.
void DescribeCommandLine(CLI::App& app, ExitCodeValue& exit_code);

// Names of the commands, in the order of the help.
std::vector<std::string> CommandNames(const CLI::App& app);

// kUsage, with what may have been meant, unless there is such a command.
Status CheckCommandName(const CLI::App& app, const std::string& name);

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_COMMAND_LINE_H_
