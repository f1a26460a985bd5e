// Completion for fish.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "writers.h"

namespace prepack::cli_docs {
namespace {

std::string FishQuoted(const std::string& text) {
  return fmt::format("'{}'", Escaped(text, "'\\"));
}

// What is offered as a value; `-x` and `-r` ask for one.
std::string FishValue(const Value& value) {
  switch (value.kind) {
    case ValueKind::kNone:
      return "";
    case ValueKind::kText:
      return " -x";
    case ValueKind::kChoice:
      return fmt::format(" -x -a '{}'", fmt::join(value.choices, " "));
    case ValueKind::kChoices:
      return fmt::format(" -x -a '(__fish_append , {})'", fmt::join(value.choices, " "));
    case ValueKind::kFile:
      return " -r -F";
    case ValueKind::kFolder:
      return " -x -a '(__fish_complete_directories)'";
  }
  return "";
}

std::string FishOption(const OptionEntry& option, const std::string& condition) {
  std::string line = fmt::format("complete -c prepack -n {}", FishQuoted(condition));
  for (const std::string& name : option.names) {
    line += name.starts_with("--") ? fmt::format(" -l {}", name.substr(2))
                                   : fmt::format(" -s {}", name.substr(1));
  }
  return fmt::format("{}{} -d {}\n", line, FishValue(option.value), FishQuoted(option.help));
}

std::string FishPositional(const Value& value, const std::string& condition) {
  const std::string start = fmt::format("complete -c prepack -n {}", FishQuoted(condition));
  if (value.kind == ValueKind::kFile) return start + " -F\n";
  if (value.kind == ValueKind::kFolder) return start + " -a '(__fish_complete_directories)'\n";
  return fmt::format("{} -a '{}'\n", start, fmt::join(value.choices, " "));
}

}  // namespace

std::string FishCompletion(const CommandTree& tree) {
  constexpr char kNoVerb[] = "__fish_use_subcommand";
  std::string text =
      "# Completion of prepack for fish, made from its command line when it was built.\n"
      "\n"
      "complete -c prepack -f\n";
  for (const OptionEntry& option : tree.program.options) text += FishOption(option, kNoVerb);
  for (const CommandEntry& command : tree.commands) {
    text += fmt::format("complete -c prepack -n {} -a {} -d {}\n", kNoVerb, command.name,
                        FishQuoted(command.description));
  }
  for (const CommandEntry& command : tree.commands) {
    const std::string condition = "__fish_seen_subcommand_from " + command.name;
    text += "\n";
    for (const OptionEntry& option : command.options) text += FishOption(option, condition);
    if (command.positionals.empty()) continue;
    text += FishPositional(command.positionals.front().value, condition);
  }
  return text;
}

}  // namespace prepack::cli_docs
