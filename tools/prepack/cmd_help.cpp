// prepack help: what `prepack --help` and `prepack COMMAND --help` print.

#include <memory>

#include "command_line.h"

namespace prepack::cli {
namespace {

ExitCodeValue RunHelp(const CLI::App& app, const std::string& name) {
  if (name.empty()) {
    Print(app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal));
    return kExitDone;
  }
  if (const Status named = CheckCommandName(app, name); !named.ok()) return Fail(named);
  Print(app.get_subcommand(name)->help(app.get_name()));
  return kExitDone;
}

}  // namespace

void AddHelp(CLI::App& app, ExitCodeValue& exit_code) {
  auto name = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("help", "Show examples and options of a command");
  SetHelpText(*command, {.examples = "  prepack help convert", .notes = ""});
  command->add_option("COMMAND", *name, "Command to explain (default: all, in short)")
      ->check(Offers(CommandNames(app)));
  command->callback([name, &app, &exit_code] { exit_code = RunHelp(app, *name); });
}

}  // namespace prepack::cli
