// Man pages, in the macros of man(7).

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "command_tree.h"

namespace prepack::cli_docs {
namespace {

// Text of any kind: nothing in it is a request, a minus stays one when it is copied.
std::string RoffText(const std::string& text) {
  std::string safe;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) safe += "\\&";
    line_begins = c == '\n';
    switch (c) {
      case '\\':
        safe += "\\e";
        break;
      case '-':
        safe += "\\-";
        break;
      case '\'':
        safe += "\\(aq";
        break;
      case '`':
        safe += "\\(ga";
        break;
      case '^':
        safe += "\\(ha";
        break;
      case '~':
        safe += "\\(ti";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string Heading(const std::string& page, const std::string& version) {
  return fmt::format(
      ".\\\" Made from the command line of prepack when it was built.\n"
      ".TH {} 1 \"\" \"prepack {}\" \"prepack\"\n.nh\n.ad l\n",
      RoffText(page), version);
}

// Lines as they are.
std::string AsIs(const std::string& text) {
  return fmt::format(".nf\n{}\n.fi\n", RoffText(text));
}

std::string OptionItem(const OptionEntry& option) {
  std::string title;
  for (const std::string& name : option.names) {
    title += fmt::format("{}\\fB{}\\fR", title.empty() ? "" : ", ", RoffText(name));
  }
  if (option.value.kind != ValueKind::kNone) {
    title += fmt::format("{}\\fI{}\\fR", title.empty() ? "" : " ", RoffText(option.value.name));
  }
  std::string text = option.help;
  if (!option.value.choices.empty()) {
    text += fmt::format("\n.br\nValues: {}", fmt::join(option.value.choices, ", "));
  }
  if (!option.default_value.empty()) {
    text += fmt::format("\n.br\nDefault: {}", option.default_value);
  }
  if (option.required) text += "\n.br\nMust be there.";
  // The requests among the text are ours.
  std::string body = RoffText(text);
  for (size_t at = 0; (at = body.find("\n\\&.br\n", at)) != std::string::npos;) {
    body.replace(at, 7, "\n.br\n");
  }
  return fmt::format(".TP\n{}\n{}\n", title, body);
}

std::string OptionsSection(const CommandEntry& command) {
  std::string text;
  if (!command.positionals.empty()) {
    text += ".SH ARGUMENTS\n";
    for (const OptionEntry& positional : command.positionals) text += OptionItem(positional);
  }
  text += ".SH OPTIONS\n";
  for (const OptionEntry& option : command.options) text += OptionItem(option);
  return text;
}

std::string Synopsis(const CommandEntry& command) {
  std::string text = fmt::format(".SH SYNOPSIS\n\\fBprepack {}\\fR", RoffText(command.name));
  for (const OptionEntry& positional : command.positionals) {
    const std::string name = fmt::format("\\fI{}\\fR", RoffText(positional.value.name));
    text += positional.required ? " " + name : fmt::format(" [{}]", name);
  }
  for (const OptionEntry& option : command.options) {
    if (!option.required) continue;
    text += fmt::format(" \\fB{}\\fR \\fI{}\\fR", RoffText(option.names.back()),
                        RoffText(option.value.name));
  }
  return text + " [\\fIoptions\\fR]\n";
}

}  // namespace

std::string CommandManPage(const CommandEntry& command, const std::string& version) {
  const std::string page = "prepack-" + command.name;
  std::string text = Heading(page, version);
  text += fmt::format(".SH NAME\n{} \\- {}\n", RoffText(page), RoffText(command.description));
  text += Synopsis(command);
  text += ".SH EXAMPLES\n" + AsIs(command.examples);
  text += OptionsSection(command);
  if (!command.notes.empty()) text += ".SH NOTES\n" + AsIs(command.notes);
  return text + ".SH SEE ALSO\n\\fBprepack\\fR(1), which lists all exit codes\n";
}

std::string ProgramManPage(const CommandTree& tree, const std::string& version) {
  const CommandEntry& program = tree.program;
  std::string text = Heading(program.name, version);
  text +=
      ".SH NAME\nprepack \\- repack quantized LLM checkpoints into the bytes that CPU kernels "
      "read\n"
      ".SH SYNOPSIS\n\\fBprepack\\fR \\fICOMMAND\\fR [\\fIarguments\\fR]\n"
      ".SH DESCRIPTION\n";
  text += RoffText(program.description) + "\n.SH COMMANDS\n";
  for (const CommandEntry& command : tree.commands) {
    text += fmt::format(".TP\n\\fBprepack\\-{}\\fR(1)\n{}\n", RoffText(command.name),
                        RoffText(command.description));
  }
  text += OptionsSection(program);
  return text + ".SH NOTES\n" + AsIs(program.notes);
}

}  // namespace prepack::cli_docs
