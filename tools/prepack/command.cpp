#include "command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "prepack/base/text.h"
#include "prepack/base/version.h"
#include "prepack/container/hub_cache.h"
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

}  // namespace

void KeepFreedMemory() {
#ifdef __GLIBC__
  // glibc maps what is larger than the first for itself, and gives back what is free beyond the
  // second at the end of its heaps.
  constexpr int kMappedBytes = 32 << 20;
  constexpr int kFreeBytes = 64 << 20;
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);
  mallopt(M_TRIM_THRESHOLD, kFreeBytes);
#endif
}

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
  command
      ->add_option("--messages", common.messages,
                   "Errors and notes on stderr: text, or json, a document per line for programs")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("FORMAT");
  command->parse_complete_callback([&common] { SetColour(common.color); });
  SetHelpText(*command, std::move(text));
  return command;
}

void AddMemoryLimit(CLI::App& command, uint64_t& memory_limit) {
  command
      .add_option("--memory-limit", memory_limit,
                  "Use few enough threads to stay below SIZE, such as 200MB or 1GiB. The page "
                  "cache does not count")
      ->transform(CLI::AsSizeValue(true))
      ->type_name("SIZE");
}

void AddProgressOptions(CLI::App& command, CommonOptions& common) {
  command
      .add_option(
          "--progress", common.progress,
          "Progress on stderr: auto (one line on a terminal, nothing elsewhere), plain "
          "(a new line every few seconds, for logs), json (a document per line, ten times a "
          "second, for programs) or none")
      ->check(CLI::IsMember({"auto", "plain", "json", "none"}))
      ->type_name("HOW");
  command
      .add_flag("-v,--verbose", common.verbose,
                "Report on stderr what prepack is working on and how long each stage took")
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

ExitCodeValue WithModels(std::initializer_list<std::string*> arguments,
                         FunctionRef<ExitCodeValue()> run) {
  for (std::string* argument : arguments) {
    if (argument->empty()) continue;
    Result<std::filesystem::path> path = PathOrSnapshot(*argument);
    if (!path.ok()) return Fail(path.status());
    *argument = path->string();
  }
  return run();
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

namespace prepack::cli {
namespace {

constexpr char kExitCodes[] =
    "Exit codes: 0 done and good; 1 checked and found bad; 2 usage; 3 malformed input; 4 the "
    "system failed;\n5 sound but not supported; 6 a check could not run; 130 interrupted, 143 by "
    "SIGTERM.\n"
    "`prepack help COMMAND` shows examples and options.";

// Every long name of an option of the command.
std::vector<std::string> OptionNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// For the first argument that looks like an option, and is none.
std::string NearOption(const CLI::App& command, std::span<char* const> arguments) {
  const std::vector<std::string> known = OptionNames(command);
  for (const std::string_view argument : arguments) {
    const std::string name(argument.substr(0, argument.find('=')));
    if (name == "--") break;
    if (!name.starts_with("--") || std::ranges::find(known, name) != known.end()) continue;
    return DidYouMean(name, known);
  }
  return "";
}

}  // namespace

void DescribeCommandLine(CLI::App& app, ExitCodeValue& exit_code) {
  app.name("prepack");
  app.description(
      "prepack repacks quantized LLM checkpoints, once and ahead of deployment, into the exact\n"
      "bytes that CPU kernels read, and proves that nothing changed.");
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(1);
  app.footer(kExitCodes);
  AddConvert(app, exit_code);
  AddMerge(app, exit_code);
  AddVerify(app, exit_code);
  AddCheck(app, exit_code);
  AddDiff(app, exit_code);
  AddPlan(app, exit_code);
  AddTune(app, exit_code);
  AddInspect(app, exit_code);
  AddTargets(app, exit_code);
  AddDoctor(app, exit_code);
  AddHelp(app, exit_code);
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

Status ParseFailure(const CLI::App& app, const CLI::ParseError& error,
                    std::span<char* const> arguments) {
  const CLI::App& command = app.get_subcommands().empty() ? app : *app.get_subcommands().front();
  std::string hint = NearOption(command, arguments);
  if (hint.empty()) {
    hint = fmt::format("`prepack {}--help` lists what is valid",
                       &command == &app ? "" : command.get_name() + " ");
  }
  return Usage("command line", error.what()).Hint(hint);
}

Status CheckCommandName(const CLI::App& app, const std::string& name) {
  const std::vector<std::string> known = CommandNames(app);
  if (std::ranges::find(known, name) != known.end()) return {};
  return Usage("command line", "unknown subcommand")
      .Found(name)
      .Expected(fmt::format("{}", fmt::join(known, ", ")))
      .Hint(DidYouMean(name, known));
}

}  // namespace prepack::cli

namespace prepack::cli {

std::string FindingsText(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    const bool is_note = finding.severity == Severity::kInfo && !finding.accepted;
    text += fmt::format(
        "{}: {}: {}{} [{}]\n", Paint(ToneOf(finding), is_note ? "note" : LabelOf(finding)),
        Printable(finding.where), Printable(finding.message, 1000),
        finding.more == 0 ? "" : fmt::format(" (and {} more like it)", finding.more), finding.id);
  }
  return text;
}

std::map<std::string, std::string> ModulesByReason(
    const std::map<std::string, std::string>& reasons) {
  std::map<std::string, std::pair<std::string, size_t>> modules;  // → the first, how many
  for (const auto& [module, why] : reasons) {
    ++modules.try_emplace(why, module, size_t{0}).first->second.second;
  }
  std::map<std::string, std::string> texts;
  for (const auto& [why, these] : modules) {
    const auto& [first, count] = these;
    texts[why] = Printable(first) + (count == 1 ? "" : fmt::format(" and {} more", count - 1));
  }
  return texts;
}

std::string DoneAlreadyText(std::string_view output) {
  return fmt::format("{}: is complete already, from the same conversion; nothing was done\n",
                     output);
}

std::string ApartText(const std::map<std::string, std::string>& apart) {
  std::string text;
  for (const auto& [why, modules] : ModulesByReason(apart)) {
    text += fmt::format("  not fused: {} ({})\n", why, modules);
  }
  return text;
}

}  // namespace prepack::cli
