// Completion for bash.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "writers.h"

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
  # Levels and the like, divided by commas: the last one is completed.
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
