#include "command.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace prepack::cli {
namespace {

int print_error = 0;  // errno of the first write to stdout that failed

}  // namespace

CLI::App* AddCommand(CLI::App& app, const std::string& name, const std::string& description,
                     CommonOptions& common, const std::string& examples) {
  CLI::App* command = app.add_subcommand(name, description);
  command->add_flag("--json", common.json, "Print one JSON document (see schemas/) to stdout");
  command->add_flag("-q,--quiet", common.quiet, "Print errors only");
  command->footer(examples);
  return command;
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
