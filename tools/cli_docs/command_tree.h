#pragma once

// The command line as data: what completions and man pages have to know of it.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace prepack::cli_docs {

// What stands behind an option, or in a place of its own.
enum class ValueKind { kNone, kText, kChoice, kChoices, kFile, kFolder };

// kChoice is one of `choices`, kChoices several of them divided by commas.
struct Value {
  ValueKind kind = ValueKind::kNone;
  std::string name;
  std::vector<std::string> choices;
};

struct OptionEntry {
  std::vector<std::string> names;  // short ones first; empty for what has no name
  std::string help;
  std::string default_value;
  bool required = false;
  bool repeats = false;
  Value value;
};

struct CommandEntry {
  std::string name;
  std::string description;
  std::string examples;
  std::string notes;
  std::vector<OptionEntry> options;
  std::vector<OptionEntry> positionals;
};

struct CommandTree {
  CommandEntry program;
  std::vector<CommandEntry> commands;
};

CommandTree ReadCommandTree(const CLI::App& app);

}  // namespace prepack::cli_docs

namespace prepack::cli_docs {

// Each gives the text of one file.
std::string BashCompletion(const CommandTree& tree);
std::string ZshCompletion(const CommandTree& tree);
std::string FishCompletion(const CommandTree& tree);
// prepack(1).
std::string ProgramManPage(const CommandTree& tree, const std::string& version);
// prepack-convert(1) and so on.
std::string CommandManPage(const CommandEntry& command, const std::string& version);

// `text` with every character of `special` behind a backslash.
std::string Escaped(const std::string& text, std::string_view special);

}  // namespace prepack::cli_docs
