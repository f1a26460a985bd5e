// The command line: prepack convert | verify | check | diff | plan | inspect | targets.

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancellation.h"
#include "base/suggest.h"
#include "base/version.h"
#include "command.h"

namespace {

using prepack::cli::ExitCodeValue;

constexpr ExitCodeValue kExitTerminated = 128 + SIGTERM;

constexpr char kExitCodes[] =
    "Exit codes: 0 done and good; 1 checked and found bad; 2 usage; 3 malformed input; 4 the "
    "system failed;\n5 sound but not supported; 6 a check could not run here; 130 interrupted, 143 "
    "by SIGTERM.\n"
    "`prepack COMMAND --help` shows options and examples.";

volatile std::sig_atomic_t asked_to_stop_by = 0;
bool stderr_is_terminal = false;

// Ends the process at once, inside a signal handler.
[[noreturn]] void EndNow(int number) {
  constexpr std::string_view kMessage = "\r\x1b[Kerror: stopped on request\n";
  constexpr size_t kEraseBytes = 4;  // at its start: a line of progress
  const std::string_view shown = kMessage.substr(stderr_is_terminal ? 0 : kEraseBytes);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, shown.data(), shown.size());
  _exit(128 + number);
}

// The first signal asks for an orderly end (partial output is removed) where there is output, and
// ends the process where there is none; the second one kills.
void InstallSignalHandlers() {
  stderr_is_terminal = isatty(STDERR_FILENO) == 1;
  struct sigaction action = {};
  action.sa_handler = [](int number) {
    if (!prepack::OrderlyEnd::IsNeeded()) EndNow(number);
    asked_to_stop_by = number;
    prepack::RequestCancellation();
  };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);  // a closed pipe (`| head`) is no reason to die half-way
  signal(SIGXFSZ, SIG_IGN);  // a file over the size limit is an error to report, too
}

// A checkpoint of thousands of shards has them all open at once. The usual limit is 1024, for the
// sake of programs that use select.
void RaiseLimitOfOpenFiles() {
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // without success all is as it was
}

// Did the first word name a subcommand that does not exist? CLI11 would only say that one is
// missing.
prepack::Status CheckCommandName(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || *argv[1] == '-') return {};
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands({})) known.push_back(command->get_name());
  if (std::ranges::find(known, argv[1]) != known.end()) return {};
  return prepack::Usage("command line", "unknown subcommand")
      .Found(argv[1])
      .Expected(fmt::format("{}", fmt::join(known, ", ")))
      .Hint(prepack::DidYouMean(argv[1], known));
}

ExitCodeValue Run(int argc, char** argv) {
  CLI::App app{
      "prepack repacks quantized LLM checkpoints, once and ahead of deployment, into the exact\n"
      "bytes that CPU kernels read, and proves that nothing changed.",
      "prepack"};
  app.set_version_flag("--version", prepack::kVersion);
  app.require_subcommand(1);
  app.footer(kExitCodes);

  ExitCodeValue exit_code = prepack::cli::kExitDone;
  prepack::cli::AddConvert(app, exit_code);
  prepack::cli::AddMerge(app, exit_code);
  prepack::cli::AddVerify(app, exit_code);
  prepack::cli::AddCheck(app, exit_code);
  prepack::cli::AddDiff(app, exit_code);
  prepack::cli::AddPlan(app, exit_code);
  prepack::cli::AddInspect(app, exit_code);
  prepack::cli::AddTargets(app, exit_code);
  if (const prepack::Status named = CheckCommandName(app, argc, argv); !named.ok()) {
    return prepack::cli::Fail(named);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    fmt::print(
        stderr, "error: command line: {}. `prepack {}--help` shows what there is\n", error.what(),
        app.get_subcommands().empty() ? "" : app.get_subcommands().front()->get_name() + " ");
    return prepack::cli::kExitUsage;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  InstallSignalHandlers();
  RaiseLimitOfOpenFiles();
  ExitCodeValue exit_code = prepack::cli::kExitSystem;
  try {
    exit_code = Run(argc, argv);
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "error: out of memory. Use fewer threads with --jobs\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
  }
  if (const int error = prepack::cli::FinishPrinting(); error != 0) {
    return prepack::cli::Fail(prepack::SystemError("stdout", "cannot write the output", error));
  }
  // As shells and schedulers have it: 128 and the number of the signal.
  const bool interrupted = exit_code == static_cast<int>(prepack::ErrorKind::kInterrupted);
  return interrupted && asked_to_stop_by == SIGTERM ? kExitTerminated : exit_code;
}
