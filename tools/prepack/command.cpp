#include "command.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

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

}  // namespace

CLI::App* AddCommand(CLI::App& app, const std::string& name, const std::string& description,
                     CommonOptions& common, HelpText text) {
  CLI::App* command = app.add_subcommand(name, description);
  command->add_flag("--json", common.json, "Print one JSON document (see schemas/) to stdout");
  command->add_flag("-q,--quiet", common.quiet, "Print errors only");
  SetHelpText(*command, std::move(text));
  return command;
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

ExitCodeValue Fail(const Status& status) {
  fmt::print(stderr, "error: {}\n", status.ToString());
  return ExitCode(status);
}

void PrintJson(const Json& json) {
  // Names from a checkpoint may hold bytes that are not UTF-8: replaced, not thrown.
  Print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void FinishJson(JsonWriter& json) {
  json.Flush();
  Print("\n");
}

void Print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written && print_error == 0) print_error = errno;
}

int FinishPrinting() {
  if (std::fflush(stdout) != 0 && print_error == 0) print_error = errno;
  return print_error == EPIPE ? 0 : print_error;
}

}  // namespace prepack::cli
