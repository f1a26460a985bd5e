#ifndef PREPACK_TOOLS_COMMAND_LINE_H_
#define PREPACK_TOOLS_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <span>

#include "command.h"

namespace prepack::cli {

// The whole command line: the program parses with it; completions and man pages are made from it.
// `exit_code` must outlive the app.
void DescribeCommandLine(CLI::App& app, ExitCodeValue& exit_code);

// Names of the commands, in the order of the help.
std::vector<std::string> CommandNames(const CLI::App& app);

// kUsage: what CLI11 says of the arguments that it could not parse, and what may have been meant.
Status ParseFailure(const CLI::App& app, const CLI::ParseError& error,
                    std::span<char* const> arguments);

// kUsage, with what may have been meant, unless there is such a command.
Status CheckCommandName(const CLI::App& app, const std::string& name);

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_COMMAND_LINE_H_
