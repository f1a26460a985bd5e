#include "command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/suggest.h"
#include "base/version.h"

namespace prepack::cli {
namespace {

constexpr char kExitCodes[] =
    "Exit codes: 0 done and good; 1 checked and found bad; 2 usage; 3 malformed input; 4 the "
    "system failed;\n5 sound but not supported; 6 a check could not run here; 130 interrupted, 143 "
    "by SIGTERM.\n"
    "`prepack help COMMAND` shows examples and options.";

// Every long name of an option of the command.
std::vector<std::string> OptionNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// For the first argument that looks like an option, and is none.
std::string NearOption(const CLI::App& command, std::span<char* const> arguments) {
  const std::vector<std::string> known = OptionNames(command);
  for (const std::string_view argument : arguments) {
    const std::string name(argument.substr(0, argument.find('=')));
    if (name == "--") break;
    if (!name.starts_with("--") || std::ranges::find(known, name) != known.end()) continue;
    return DidYouMean(name, known);
  }
  return "";
}

}  // namespace

void DescribeCommandLine(CLI::App& app, ExitCodeValue& exit_code) {
  app.name("prepack");
  app.description(
      "prepack repacks quantized LLM checkpoints, once and ahead of deployment, into the exact\n"
      "bytes that CPU kernels read, and proves that nothing changed.");
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(1);
  app.footer(kExitCodes);
  AddConvert(app, exit_code);
  AddMerge(app, exit_code);
  AddVerify(app, exit_code);
  AddCheck(app, exit_code);
  AddDiff(app, exit_code);
  AddPlan(app, exit_code);
  AddInspect(app, exit_code);
  AddTargets(app, exit_code);
  AddHelp(app, exit_code);
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

Status ParseFailure(const CLI::App& app, const CLI::ParseError& error,
                    std::span<char* const> arguments) {
  const CLI::App& command = app.get_subcommands().empty() ? app : *app.get_subcommands().front();
  std::string hint = NearOption(command, arguments);
  if (hint.empty()) {
    hint = fmt::format("`prepack {}--help` shows what there is",
                       &command == &app ? "" : command.get_name() + " ");
  }
  return Usage("command line", error.what()).Hint(hint);
}

Status CheckCommandName(const CLI::App& app, const std::string& name) {
  const std::vector<std::string> known = CommandNames(app);
  if (std::ranges::find(known, name) != known.end()) return {};
  return Usage("command line", "unknown subcommand")
      .Found(name)
      .Expected(fmt::format("{}", fmt::join(known, ", ")))
      .Hint(DidYouMean(name, known));
}

}  // namespace prepack::cli
