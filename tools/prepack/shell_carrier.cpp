#include "shell_carrier.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "prepack/base/exec_pointers.h"
#include "prepack/base/progress.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX has it nowhere

namespace prepack::cli {
namespace {

constexpr std::string_view kName = "{file}";
constexpr std::string_view kPath = "{path}";
constexpr auto kLookEvery = std::chrono::milliseconds(20);
constexpr int kPatience = 250;  // looks before a command that was asked to end is killed

// One word for the shell, whatever it holds.
std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

// In one pass: a name may hold {path}.
std::string Filled(std::string_view command, std::string_view name, std::string_view path) {
  std::string text;
  while (!command.empty()) {
    const bool is_name = command.starts_with(kName);
    if (is_name || command.starts_with(kPath)) {
      text += Quoted(is_name ? name : path);
      command.remove_prefix(is_name ? kName.size() : kPath.size());
    } else {
      text += command.front();
      command.remove_prefix(1);
    }
  }
  return text;
}

// In a process group of its own, so that all that the shell has started can be ended.
Result<pid_t> Start(std::string text, const std::string& option,
                    std::vector<std::string> environment) {
  std::string shell = "sh";
  std::string flag = "-c";
  const std::array<char*, 4> arguments = {shell.data(), flag.data(), text.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t process = 0;
  const int error = posix_spawn(&process, "/bin/sh", &actions, &attributes, arguments.data(),
                                ExecPointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return SystemError(option, "cannot start a shell", error);
  return process;
}

void End(pid_t process) {
  kill(-process, SIGTERM);
  for (int look = 0; look < kPatience; ++look) {
    if (waitpid(process, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(kLookEvery);
  }
  kill(-process, SIGKILL);
  waitpid(process, nullptr, 0);
}

std::string EndText(int status) {
  return WIFEXITED(status) ? fmt::format("exit code {}", WEXITSTATUS(status))
                           : fmt::format("signal {}", WTERMSIG(status));
}

}  // namespace

ShellCarrier::ShellCarrier(std::string option, std::string command)
    : option_(std::move(option)), command_(std::move(command)) {
  for (char** variable = environ; *variable != nullptr; ++variable) {
    environment_.emplace_back(*variable);
  }
}

Status ShellCarrier::Check() const {
  if (command_.find(kName) != std::string::npos) return {};
  return Usage(option_, "the command does not say which file")
      .Found(command_)
      .Expected(fmt::format("{} 'COMMAND {{file}} {{path}}'", option_));
}

Status ShellCarrier::Carry(const std::string& name, const std::filesystem::path& path,
                           const std::atomic<bool>& stop) {
  // What a program takes for an option is no name of a file.
  if (name.starts_with('-')) return Malformed(Printable(name), "not the name of a file");
  std::error_code error;
  const std::filesystem::path place = std::filesystem::absolute(path, error);
  std::string text = Filled(command_, name, (error ? path : place).string());
  PREPACK_TRY_ASSIGN(const pid_t process, Start(std::move(text), option_, environment_));
  int status = 0;
  while (waitpid(process, &status, WNOHANG) == 0) {
    if (stop || CancellationRequested()) {
      End(process);
      return Interrupted(option_);
    }
    std::this_thread::sleep_for(kLookEvery);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return Status(ErrorKind::kSystem, fmt::format("{}: {}", option_, name), "the command failed")
      .Found(EndText(status))
      .Hint("With --resume, the same command line goes on from here");
}

}  // namespace prepack::cli
