#include "command.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "terminal.h"

namespace prepack::cli {
namespace {

int print_error = 0;  // errno of the first write to stdout that failed

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(HelpText text) : text_(std::move(text)) {}

  const HelpText& text() const { return text_; }

  std::string make_description(const CLI::App* app) const override {
    return fmt::format("{}\nExamples:\n{}\n\n", CLI::Formatter::make_description(app),
                       text_.examples);
  }
  std::string make_footer(const CLI::App* /*app*/) const override {
    return text_.notes.empty() ? "" : text_.notes + "\n";
  }

 private:
  HelpText text_;
};

void PrintLabelled(Tone tone, std::string_view label, std::string_view text) {
  const std::string line =
      fmt::format("{} {}\n", Paint(tone, fmt::format("{}:", label), Stream::kStderr), text);
  const std::string shown = DisplayOf(Stream::kStderr).unicode ? line : ToAscii(line);
  // Where stderr cannot be written, nobody is left to tell: the exit code says what happened.
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

}  // namespace

CLI::App* AddCommand(CLI::App& app, const std::string& name, const std::string& description,
                     CommonOptions& common, HelpText text) {
  CLI::App* command = app.add_subcommand(name, description);
  command->add_flag("--json", common.json, "Print one JSON document (see schemas/) to stdout");
  command->add_flag("-q,--quiet", common.quiet, "Print errors only");
  command
      ->add_option("--color", common.color,
                   "Colours: auto (on a terminal, unless NO_COLOR is set), always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN");
  command->parse_complete_callback([&common] { SetColour(common.color); });
  SetHelpText(*command, std::move(text));
  return command;
}

void AddMemoryLimit(CLI::App& command, uint64_t& memory_limit) {
  command
      .add_option("--memory-limit", memory_limit,
                  "Use so few threads that the process stays below SIZE, such as 200MB or 1GiB; "
                  "the page cache is not counted")
      ->transform(CLI::AsSizeValue(true))
      ->type_name("SIZE");
}

void AddProgressOptions(CLI::App& command, CommonOptions& common) {
  command
      .add_option("--progress", common.progress,
                  "Progress on stderr: auto (one line on a terminal, nothing elsewhere), plain "
                  "(a new line every few seconds, for logs) or none")
      ->check(CLI::IsMember({"auto", "plain", "none"}))
      ->type_name("HOW");
  command
      .add_flag("-v,--verbose", common.verbose,
                "Say on stderr what is worked on, and how long each stage took")
      ->excludes("--quiet");
}

void SetHelpText(CLI::App& command, HelpText text) {
  command.formatter(std::make_shared<HelpFormatter>(std::move(text)));
}

HelpText HelpTextOf(const CLI::App& command) {
  const auto formatter = std::dynamic_pointer_cast<HelpFormatter>(command.get_formatter());
  return formatter ? formatter->text() : HelpText{};
}

CLI::Validator Offers(const std::vector<std::string>& values) {
  return {[](const std::string&) { return std::string(); },
          fmt::format("{{{}}}", fmt::join(values, ","))};
}

void PrintError(std::string_view text) {
  PrintLabelled(Tone::kBad, "error", text);
}

void PrintNote(std::string_view text) {
  PrintLabelled(Tone::kUnsure, "note", text);
}

ExitCodeValue Fail(const Status& status) {
  PrintError(status.ToString());
  return ExitCode(status);
}

void PrintJson(const Json& json) {
  // Names from a checkpoint may hold bytes that are not UTF-8: replaced, not thrown.
  PrintJsonText(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void PrintJsonText(std::string_view text) {
  PrintRaw(PrintableJson(text));
}

void FinishJson(JsonWriter& json) {
  json.Flush();
  PrintRaw("\n");
}

void Print(std::string_view text) {
  if (DisplayOf(Stream::kStdout).unicode) return PrintRaw(text);
  PrintRaw(ToAscii(text));
}

void PrintRaw(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written && print_error == 0) print_error = errno;
}

int FinishPrinting() {
  if (std::fflush(stdout) != 0 && print_error == 0) print_error = errno;
  return print_error == EPIPE ? 0 : print_error;
}

}  // namespace prepack::cli
