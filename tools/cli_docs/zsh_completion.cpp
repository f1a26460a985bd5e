// Completion for zsh.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "writers.h"

namespace prepack::cli_docs {
namespace {

// Within single quotes, where a quote is left, written and entered again.
std::string ZshQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// What follows the name of a value: ":NAME:ACTION".
std::string ActionOf(const Value& value) {
  std::string action;
  switch (value.kind) {
    case ValueKind::kNone:
      return "";
    case ValueKind::kChoice:
      action = fmt::format("({})", fmt::join(value.choices, " "));
      break;
    case ValueKind::kChoices:
      action = fmt::format("_values -s , {} {}", Escaped(value.name, "[],. "),
                           fmt::join(value.choices, " "));
      break;
    case ValueKind::kFile:
      action = "_files";
      break;
    case ValueKind::kFolder:
      action = "_files -/";
      break;
    case ValueKind::kText:
      break;
  }
  return fmt::format(":{}:{}", Escaped(value.name, "[]:"), action);
}

// All names of an option exclude each other, unless it may be repeated.
std::string OptionSpecs(const OptionEntry& option, std::string_view indent) {
  std::string specs;
  for (const std::string& name : option.names) {
    const bool is_long = name.starts_with("--");
    const char* joined = option.value.kind == ValueKind::kNone ? "" : is_long ? "=" : "+";
    const std::string others =
        option.repeats ? "*" : fmt::format("({})", fmt::join(option.names, " "));
    const std::string spec = fmt::format("{}{}{}[{}]{}", others, name, joined,
                                         Escaped(option.help, "[]:\\"), ActionOf(option.value));
    specs += fmt::format(" \\\n{}{}", indent, ZshQuoted(spec));
  }
  return specs;
}

std::string CommandCase(const CommandEntry& command) {
  std::string text = fmt::format("        {})\n          _arguments", command.name);
  for (const OptionEntry& option : command.options) text += OptionSpecs(option, "            ");
  for (size_t i = 0; i < command.positionals.size(); ++i) {
    const std::string spec = fmt::format("{}{}", i + 1, ActionOf(command.positionals[i].value));
    text += fmt::format(" \\\n            {}", ZshQuoted(spec));
  }
  return text + "\n          ;;\n";
}

}  // namespace

std::string ZshCompletion(const CommandTree& tree) {
  std::string text =
      "#compdef prepack\n"
      "# Completion of prepack for zsh, made from its command line when it was built.\n"
      "\n"
      "_prepack() {\n"
      "  local curcontext=$curcontext state line\n"
      "  local -a verbs\n"
      "  typeset -A opt_args\n"
      "  verbs=(\n";
  for (const CommandEntry& command : tree.commands) {
    const std::string verb =
        fmt::format("{}:{}", command.name, Escaped(command.description, ":\\"));
    text += fmt::format("    {}\n", ZshQuoted(verb));
  }
  text += "  )\n  _arguments -C";
  for (const OptionEntry& option : tree.program.options) text += OptionSpecs(option, "    ");
  text +=
      " \\\n    '1:command:->verb' '*::argument:->argument'\n"
      "  case $state in\n"
      "    verb) _describe command verbs ;;\n"
      "    argument)\n"
      "      case $words[1] in\n";
  for (const CommandEntry& command : tree.commands) text += CommandCase(command);
  return text +
         "      esac\n"
         "      ;;\n"
         "  esac\n"
         "}\n"
         "\n"
         "_prepack \"$@\"\n";
}

}  // namespace prepack::cli_docs
