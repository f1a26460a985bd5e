// Completion for bash.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "command_tree.h"

namespace prepack::cli_docs {
namespace {

constexpr std::string_view kHead =
    R"(# Completion of prepack for bash, made from its command line when it was built.

_prepack() {
  local current=${COMP_WORDS[COMP_CWORD]} at=$((COMP_CWORD - 1)) verb='' offer='' values='' word
  COMPREPLY=()
  # bash divides --option=value and pattern=value at the sign: back to the option.
  if [[ $current == '=' || ${COMP_WORDS[at]} == '=' ]]; then
    [[ $current != '=' ]] || current=''
    while ((at > 1)) && [[ ${COMP_WORDS[at]} != -* ]]; do ((at -= 1)); done
  fi
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [[ $word == -* ]] || { verb=$word; break; }
  done
)";

constexpr std::string_view kTail = R"(
  # Levels and so on, divided by commas: the last one is completed.
  local before=''
  [[ $offer != list ]] || before=${current%"${current##*,}"}
  case $offer in
    folders)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -d -- "$current")
      ;;
    files)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      ;;
    words | list)
      mapfile -t COMPREPLY < <(compgen -P "$before" -W "$values" -- "${current#"$before"}")
      ;;
  esac
}
complete -F _prepack prepack
)";

std::string OfferOf(const Value& value) {
  const std::string words = fmt::format("{}", fmt::join(value.choices, " "));
  switch (value.kind) {
    case ValueKind::kChoice:
      return fmt::format("offer=words values='{}'", words);
    case ValueKind::kChoices:
      return fmt::format("offer=list values='{}'", words);
    case ValueKind::kFile:
      return "offer=files";
    case ValueKind::kFolder:
      return "offer=folders";
    case ValueKind::kNone:
    case ValueKind::kText:
      break;
  }
  return "offer=nothing";
}

std::string OptionNames(const CommandEntry& command) {
  std::vector<std::string> names;
  for (const OptionEntry& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return fmt::format("{}", fmt::join(names, " "));
}

// By "VERB OPTION": what stands behind the option.
std::string ValueCases(const CommandTree& tree) {
  std::string text = "  case \"$verb ${COMP_WORDS[at]}\" in\n";
  for (const CommandEntry& command : tree.commands) {
    for (const OptionEntry& option : command.options) {
      if (option.value.kind == ValueKind::kNone) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) {
        patterns.push_back(fmt::format("'{} {}'", command.name, name));
      }
      text += fmt::format("    {}) {} ;;\n", fmt::join(patterns, " | "), OfferOf(option.value));
    }
  }
  return text + "  esac\n";
}

// By "VERB -" and "VERB": the options, and what stands in a place of its own.
std::string WordCases(const CommandTree& tree) {
  std::string verbs;
  for (const CommandEntry& command : tree.commands) {
    verbs += fmt::format("{}{}", verbs.empty() ? "" : " ", command.name);
  }
  std::string text =
      "  if [[ -z $offer ]]; then\n"
      "    [[ $current == -* ]] && word='-' || word=''\n"
      "    case $verb$word in\n";
  text += fmt::format("      '') offer=words values='{}' ;;\n", verbs);
  text += fmt::format("      -) offer=words values='{}' ;;\n", OptionNames(tree.program));
  for (const CommandEntry& command : tree.commands) {
    text +=
        fmt::format("      {}-) offer=words values='{}' ;;\n", command.name, OptionNames(command));
    if (command.positionals.empty()) continue;
    text +=
        fmt::format("      {}) {} ;;\n", command.name, OfferOf(command.positionals.front().value));
  }
  return text + "    esac\n  fi\n";
}

}  // namespace

std::string BashCompletion(const CommandTree& tree) {
  return fmt::format("{}{}{}{}", kHead, ValueCases(tree), WordCases(tree), kTail.substr(1));
}

}  // namespace prepack::cli_docs

namespace prepack::cli_docs {

// Completion for fish.
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

namespace prepack::cli_docs {

// Completion for zsh.
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
