#pragma once

// What the subcommands share. Each has a file of its own with an options struct, a function that
// adds it to the command line, and a function that runs it and gives the exit code.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/function_ref.h"
#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/container/json_writer.h"
#include "prepack/formats/format.h"

namespace prepack::cli {

// Options that every subcommand has.
struct CommonOptions {
  bool json = false;
  bool quiet = false;
  bool verbose = false;
  std::string color = "auto";     // "auto", "always", "never"
  std::string messages = "text";  // "text", "json"; main looks at it before all is parsed
  std::string progress = "auto";  // "auto", "plain", "json", "none"
};

// For commands that take and give back the same few MiB again and again: keeps them in the process,
// instead of asking the kernel for zeroed pages every time.
void KeepFreedMemory();

// How the program ends; main returns it.
using ExitCodeValue = int;
inline constexpr ExitCodeValue kExitDone = 0;
inline constexpr ExitCodeValue kExitCheckFailed = 1;
inline constexpr ExitCodeValue kExitSystem = 4;
inline constexpr ExitCodeValue kExitNotRun = 6;

// What help and man pages say about a command beside its options.
struct HelpText {
  std::string examples;  // lines that begin with two spaces
  std::string notes;     // may be empty
};

// Adds a subcommand with the common options; those that concern the terminal hold from when the
// command line was parsed.
CLI::App* AddCommand(CLI::App& app, const std::string& name, const std::string& description,
                     CommonOptions& common, HelpText text);
// Examples come first in the help of the command, notes last.
void SetHelpText(CLI::App& command, HelpText text);
// What SetHelpText got.
HelpText HelpTextOf(const CLI::App& command);
// --progress and --verbose, for commands that take long.
void AddProgressOptions(CLI::App& command, CommonOptions& common);
// --memory-limit, for commands that take as many threads as they are given.
void AddMemoryLimit(CLI::App& command, uint64_t& memory_limit);
// Values that help and completions name. Others are not refused here: the library does so, and says
// what was meant.
CLI::Validator Offers(const std::vector<std::string>& values);

// For arguments that name a checkpoint or packed folder: puts the snapshot in the local cache of
// the hub in the place of the name of a model (container/hub_cache.h), then calls `run`. Empty ones
// are left alone.
inline constexpr const char* kCheckpointArgument =
    "Checkpoint folder, or ORG/NAME[@REVISION] of a model in the local hub cache";
ExitCodeValue WithModels(std::initializer_list<std::string*> arguments,
                         FunctionRef<ExitCodeValue()> run);
// What errors and notes are from here on: text for people, or a document per line (--messages json;
// schemas/message.schema.json). Errors of the command line itself are told so, too: main calls this
// before it is parsed.
enum class MessageFormat : uint8_t { kText, kJson };
MessageFormat MessageFormatOf(std::span<char* const> arguments);
void SetMessageFormat(MessageFormat format);
// A document in one line, for stderr.
std::string MessageLine(const Json& document);

// Prints "error: …" to stderr and gives the exit code of the status.
ExitCodeValue Fail(const Status& status);
// Prints an error to stderr for which there is no status: "error: text", exit code 4.
void PrintSystemError(std::string_view text);
// Prints a finding that makes the command end with `code`, as "error: WHERE: MESSAGE".
void PrintFinding(const Finding& finding, ExitCodeValue code);
// Prints a note to stderr, as "note: text".
void PrintNote(std::string_view text);
// Prints one JSON document to stdout.
void PrintJson(const Json& json);
// Prints pieces of one, in which no character is cut: for JsonWriter.
void PrintJsonText(std::string_view text);
// Prints to stdout as it is.
void PrintRaw(std::string_view text);
// Ends a document that was written piece by piece to PrintJsonText.
void FinishJson(JsonWriter& json);
// Prints text for people to stdout, in characters that it can show.
void Print(std::string_view text);
// Flushes stdout and gives the errno of the first write that failed, 0 when all went well. A closed
// pipe (`| head`) is well.
int FinishPrinting();

// One function per subcommand; `exit_code` is set when the subcommand was chosen and has run.
void AddConvert(CLI::App& app, ExitCodeValue& exit_code);
void AddMerge(CLI::App& app, ExitCodeValue& exit_code);
void AddPlan(CLI::App& app, ExitCodeValue& exit_code);
void AddTune(CLI::App& app, ExitCodeValue& exit_code);
void AddInspect(CLI::App& app, ExitCodeValue& exit_code);
void AddVerify(CLI::App& app, ExitCodeValue& exit_code);
void AddCheck(CLI::App& app, ExitCodeValue& exit_code);
void AddDiff(CLI::App& app, ExitCodeValue& exit_code);
void AddDoctor(CLI::App& app, ExitCodeValue& exit_code);
void AddTargets(CLI::App& app, ExitCodeValue& exit_code);
// Knows the commands that were added before it.
void AddHelp(CLI::App& app, ExitCodeValue& exit_code);

}  // namespace prepack::cli

namespace prepack::cli {

// The whole command line: the program parses with it; completions and man pages are made from it.
// `exit_code` must outlive the app.
void DescribeCommandLine(CLI::App& app, ExitCodeValue& exit_code);

// Names of the commands, in the order of the help.
std::vector<std::string> CommandNames(const CLI::App& app);

// Never takes the value apart: the process ends soon and gives all of its memory back at once, and
// to free hundreds of thousands of modules one by one takes longer than some commands.
template <typename T>
T& KeepUntilExit(T value) {
  static T* kept = nullptr;  // so that tools that look for leaks see it
  kept = new T(std::move(value));
  return *kept;
}

// kUsage: what CLI11 says of the arguments that it could not parse, and what may have been meant.
Status ParseFailure(const CLI::App& app, const CLI::ParseError& error,
                    std::span<char* const> arguments);

// kUsage, with what may have been meant, unless there is such a command.
Status CheckCommandName(const CLI::App& app, const std::string& name);

}  // namespace prepack::cli

namespace prepack::cli {

// One "note: WHERE: MESSAGE" line per finding; empty when there are none.
std::string FindingsText(const std::vector<Finding>& findings);

// Of modules and their reasons: each reason, and the modules that share it: "NAME and 3 more".
std::map<std::string, std::string> ModulesByReason(
    const std::map<std::string, std::string>& reasons);
// What was not fused on request, by reason: "not fused: WHY (MODULE and 31 more)".
std::string ApartText(const std::map<std::string, std::string>& apart);
// What convert --resume says of an output that is there.
std::string DoneAlreadyText(std::string_view output);

}  // namespace prepack::cli
