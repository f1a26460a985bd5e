// prepack help: what `prepack --help` and `prepack COMMAND --help` print.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "json_reports.h"
#include "prepack/layouts/table.h"

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
  command->add_option("COMMAND", *name, "Command to explain (default: a summary of all)")
      ->check(Offers(CommandNames(app)));
  command->callback([name, &app, &exit_code] { exit_code = RunHelp(app, *name); });
}

}  // namespace prepack::cli

namespace prepack::cli {

// prepack targets: every layout, what it takes and who reads it.
namespace {

std::string TargetsText() {
  std::string text;
  for (const Target& target : AllTargets()) {
    text += fmt::format("{}: {}\n", target.id, target.runtime);
    for (const Layout* layout : LayoutsOfTarget(target.id)) {
      text += fmt::format("  {} (version {})\n", layout->id, layout->version);
      text += fmt::format("    takes        {}\n", layout->schemes);
      text += fmt::format("    constraints  {}\n", layout->constraints);
      text += fmt::format("    read by      {}\n", layout->consumer);
      text += fmt::format("    CPU          {}\n", layout->isa);
      text += fmt::format("    mirrors      {}\n", layout->mirrors);
      text += fmt::format("    weights at   {}\n", layout->address);
      if (!layout->notes.empty()) text += fmt::format("    note         {}\n", layout->notes);
      text += fmt::format("    fingerprint  {}\n", layout->fingerprint);
    }
  }
  return text + "gguf: llama.cpp and what is built on it, with ggml's types in place of layouts\n";
}

}  // namespace

void AddTargets(CLI::App& app, ExitCodeValue& exit_code) {
  auto common = std::make_shared<CommonOptions>();
  CLI::App* command = AddCommand(
      app, "targets", "List every layout: what it takes and which kernel reads it", *common,
      {.examples = "  prepack targets --json | jq '.targets[].layouts[].layout'", .notes = ""});
  command->callback([common, &exit_code] {
    if (common->json) {
      PrintJson(TargetsJson());
    } else {
      Print(TargetsText());
    }
    exit_code = kExitDone;
  });
}

}  // namespace prepack::cli
