// prepack: parses the command line and runs the command that it names.

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <span>
#include <sstream>
#include <string_view>

#include "command.h"
#include "prepack/base/progress.h"
#include "prepack/io/file.h"
#include "prepack/io/noted_ranges.h"
#include "table.h"

namespace {

using prepack::cli::ExitCodeValue;

constexpr ExitCodeValue kExitTerminated = 128 + SIGTERM;

volatile std::sig_atomic_t asked_to_stop_by = 0;
bool stderr_is_terminal = false;
bool messages_are_documents = false;

// Ends the process at once, inside a signal handler.
[[noreturn]] void EndNow(int number) {
  constexpr std::string_view kMessage = "\r\x1b[Kerror: stopped on request\n";
  constexpr size_t kEraseBytes = 4;  // at its start: a line of progress
  constexpr std::string_view kDocument =
      R"({"kind":"prepack-error","version":1,"error":"interrupted","exit_code":130,)"
      R"("where":"prepack","what":"stopped on request","text":"prepack: stopped on request"})"
      "\n";
  const std::string_view text = kMessage.substr(stderr_is_terminal ? 0 : kEraseBytes);
  const std::string_view shown = messages_are_documents ? kDocument : text;
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

// A program that runs this one, as the Python package does, names itself in the environment: should
// it die without a word, this one is to stop, too.
void StopWithParent() {
  const char* const parent = std::getenv("PREPACK_STOP_WITH_PARENT");
  if (parent == nullptr || prepack::cli::ParseCount(parent) != static_cast<uint64_t>(getppid()))
    return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
}

// What prepack-remote asks for: the file for the ranges that a command wants of files of which only
// headers are here. Null if nobody asks, or if the command writes a model: it would be one of
// zeros.
const char* FileForWantedRanges(std::span<char* const> arguments) {
  constexpr std::array<std::string_view, 5> kReading = {"plan", "inspect", "check", "diff",
                                                        "doctor"};
  if (arguments.size() < 2 || std::ranges::find(kReading, arguments[1]) == kReading.end()) {
    return nullptr;
  }
  return std::getenv("PREPACK_WANTED_RANGES");
}

// An answer that zeros are part of is none.
prepack::Status ReportWantedRanges(const char* file) {
  const prepack::NotedRanges& wanted = prepack::NotedRanges::OfProcess();
  PREPACK_TRY(prepack::WriteFileAtomically(file, wanted.Json()));
  if (wanted.empty()) return {};
  return prepack::Unavailable(file, "the command wants ranges of files that are not here");
}

// A checkpoint of thousands of shards has them all open at once. The usual limit is 1024, for the
// sake of programs that use select.
void RaiseLimitOfOpenFiles() {
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // without success all is as it was
}

// A standard stream that the caller has closed must not become the next file that is opened: what
// is printed would be written into a shard. In its place comes one that fails when it is used.
void OccupyClosedStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest number that is free is this one.
    [[maybe_unused]] const int opened = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

ExitCodeValue Run(int argc, char** argv) {
  ExitCodeValue exit_code = prepack::cli::kExitDone;
  CLI::App app;
  prepack::cli::DescribeCommandLine(app, exit_code);
  const prepack::cli::MessageFormat messages =
      prepack::cli::MessageFormatOf(std::span(argv, static_cast<size_t>(argc)));
  prepack::cli::SetMessageFormat(messages);
  messages_are_documents = messages == prepack::cli::MessageFormat::kJson;
  // CLI11 would only say that a subcommand is missing.
  if (argc > 1 && *argv[1] != '-') {
    const prepack::Status named = prepack::cli::CheckCommandName(app, argv[1]);
    if (!named.ok()) return prepack::cli::Fail(named);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    std::ostringstream text;
    const ExitCodeValue code = app.exit(done, text, text);
    prepack::cli::PrintRaw(text.str());
    return code;
  } catch (const CLI::ParseError& error) {
    return prepack::cli::Fail(
        prepack::cli::ParseFailure(app, error, std::span(argv, static_cast<size_t>(argc))));
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  OccupyClosedStreams();
  InstallSignalHandlers();
  StopWithParent();
  RaiseLimitOfOpenFiles();
  const char* const wanted = FileForWantedRanges(std::span(argv, static_cast<size_t>(argc)));
  if (wanted != nullptr) {
    prepack::NotedRanges::OfProcess().SetMode(prepack::NotedRanges::Mode::kMissing);
  }
  ExitCodeValue exit_code = prepack::cli::kExitSystem;
  try {
    exit_code = Run(argc, argv);
  } catch (const std::bad_alloc&) {
    prepack::cli::PrintSystemError("out of memory. Use fewer threads with --jobs");
  } catch (const std::exception& error) {
    prepack::cli::PrintSystemError(error.what());
  }
  if (const int error = prepack::cli::FinishPrinting(); error != 0) {
    return prepack::cli::Fail(prepack::SystemError("stdout", "cannot write the output", error));
  }
  if (wanted != nullptr) {
    const prepack::Status reported = ReportWantedRanges(wanted);
    if (!reported.ok()) return prepack::cli::Fail(reported);
  }
  // As shells and schedulers have it: 128 and the number of the signal.
  const bool interrupted = exit_code == static_cast<int>(prepack::ErrorKind::kInterrupted);
  return interrupted && asked_to_stop_by == SIGTERM ? kExitTerminated : exit_code;
}
