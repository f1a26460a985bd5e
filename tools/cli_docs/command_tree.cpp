#include "command_tree.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "command.h"

namespace prepack::cli_docs {
namespace {

// Names of values that say what they are.
constexpr std::array kFolders = {"SRC", "OUT", "A", "B", "FLOAT"};
constexpr std::array kFiles = {"FILE", "PATH", "REPORT.json"};

// CLI11 tells the values of an option only within its type: "FORM:{blocked,plain,native}".
std::vector<std::string> ChoicesIn(std::string_view type) {
  std::vector<std::string> choices;
  const size_t begin = type.find(":{");
  const size_t end = type.find('}', begin == std::string_view::npos ? 0 : begin);
  if (begin == std::string_view::npos || end == std::string_view::npos) return choices;
  std::string_view list = type.substr(begin + 2, end - begin - 2);
  while (!list.empty()) {
    const size_t comma = list.find(',');
    choices.emplace_back(list.substr(0, comma));
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  return choices;
}

Value ReadValue(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};
  const std::string type = option.get_type_name();
  Value value{.kind = ValueKind::kText, .name = type.substr(0, type.find(':')), .choices = {}};
  if (option.get_positional()) value.name = option.get_name(true);
  value.choices = ChoicesIn(type);
  if (!value.choices.empty()) {
    const bool list = value.name.find(',') != std::string::npos;
    value.kind = list ? ValueKind::kChoices : ValueKind::kChoice;
  } else if (std::ranges::find(kFolders, value.name) != kFolders.end()) {
    value.kind = ValueKind::kFolder;
  } else if (std::ranges::find(kFiles, value.name) != kFiles.end()) {
    value.kind = ValueKind::kFile;
  }
  return value;
}

OptionEntry ReadOption(const CLI::Option& option) {
  OptionEntry entry;
  for (const std::string& name : option.get_snames()) entry.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) entry.names.push_back("--" + name);
  entry.help = option.get_description();
  entry.default_value = option.get_default_str();
  entry.required = option.get_required();
  entry.repeats = option.get_expected_max() > 1;
  entry.value = ReadValue(option);
  return entry;
}

CommandEntry ReadCommand(const CLI::App& app) {
  CommandEntry command;
  command.name = app.get_name();
  command.description = app.get_description();
  const cli::HelpText text = cli::HelpTextOf(app);
  command.examples = text.examples;
  command.notes = text.notes.empty() ? app.get_footer() : text.notes;
  for (const CLI::Option* option : app.get_options()) {
    (option->get_positional() ? command.positionals : command.options)
        .push_back(ReadOption(*option));
  }
  return command;
}

}  // namespace

CommandTree ReadCommandTree(const CLI::App& app) {
  CommandTree tree{.program = ReadCommand(app), .commands = {}};
  for (const CLI::App* command : app.get_subcommands({})) {
    tree.commands.push_back(ReadCommand(*command));
  }
  return tree;
}

}  // namespace prepack::cli_docs
