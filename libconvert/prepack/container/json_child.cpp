#include "prepack/container/json_child.h"

#include <fmt/format.h>
#include <linux/memfd.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "prepack/base/exec_pointers.h"
#include "prepack/base/progress.h"
#include "prepack/base/text.h"

extern char** environ;

namespace prepack {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostAnswerBytes = size_t{1} << 20;
constexpr size_t kMostErrorBytes = 4096;  // that are looked at, from the end
constexpr int kPollMilliseconds = 100;
constexpr auto kPatience = std::chrono::seconds(2);  // for its end

std::vector<std::string> EnvironmentOf(const ChildCommand& command) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::ranges::count(command.environment, name,
                           [](const auto& own) { return std::string_view(own.first); }) == 0) {
      all.emplace_back(text);
    }
  }
  for (const auto& [name, value] : command.environment) {
    all.push_back(fmt::format("{}={}", name, value));
  }
  return all;
}

// `theirs` becomes its input and output. All other files of ours are closed when it starts.
int Spawn(const ChildCommand& command, int theirs, int errors, pid_t& process) {
  std::vector<std::string> arguments = command.arguments;
  std::vector<std::string> environment = EnvironmentOf(command);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, theirs, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  // A stop from the terminal is for us, and we end it.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawn(&process, arguments.front().c_str(), &actions, &attributes,
                                ExecPointers(arguments).data(), ExecPointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// memfd_create, which glibc has since 2.27 only. -1 where the kernel has none, either: what the
// program says of errors then goes where ours do.
int MakeMemoryFile() {
  return static_cast<int>(::syscall(SYS_memfd_create, "prepack-child-errors", MFD_CLOEXEC));
}

}  // namespace

Result<Child> Child::Start(const ChildCommand& command) {
  const std::string& name = command.arguments.front();
  std::array<int, 2> ends = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return SystemError(name, "cannot make a channel", errno);
  }
  const int errors = MakeMemoryFile();
  pid_t process = 0;
  const int error = Spawn(command, ends[1], errors, process);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    if (errors >= 0) close(errors);
    return Unavailable(name, "the program cannot be started")
        .Found(SystemError("", "", error).what());
  }
  return Child(process, ends[0], errors, name);
}

Child::Child(Child&& other) noexcept
    : process_(std::exchange(other.process_, 0)),
      channel_(std::exchange(other.channel_, -1)),
      errors_(std::exchange(other.errors_, -1)),
      name_(std::move(other.name_)),
      received_(std::move(other.received_)) {}

Child::~Child() {
  if (process_ == 0) return;
  close(channel_);
  const Clock::time_point begin = Clock::now();
  while (waitpid(process_, nullptr, WNOHANG) == 0) {
    if (Clock::now() - begin > kPatience) {
      kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (errors_ >= 0) close(errors_);
}

// The last line that is not empty.
std::string Child::LastError() const {
  const off_t size = errors_ < 0 ? 0 : lseek(errors_, 0, SEEK_END);
  if (size <= 0) return "";
  std::string text(std::min<size_t>(static_cast<size_t>(size), kMostErrorBytes), '\0');
  const ssize_t count =
      pread(errors_, text.data(), text.size(), size - static_cast<off_t>(text.size()));
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  const std::string_view line = Trimmed(text);
  return std::string(Trimmed(line.substr(line.rfind('\n') + 1)));
}

Status Child::Failure(std::string_view what) const {
  Status status = Unavailable(name_, what);
  const std::string error = LastError();
  return error.empty() ? status : std::move(status).Found(error);
}

Status Child::Send(const std::string& line) {
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t count = send(channel_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Failure("the program has ended");
    sent += static_cast<size_t>(count);
  }
  return {};
}

Result<std::string> Child::ReadLine(double seconds) {
  const Clock::time_point begin = Clock::now();
  while (true) {
    const size_t end = received_.find('\n');
    if (end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    if (received_.size() > kMostAnswerBytes) {
      return Malformed(name_, "its answer is longer than 1 MiB");
    }
    if (CancellationRequested()) return Interrupted(name_);
    if (std::chrono::duration<double>(Clock::now() - begin).count() > seconds) {
      return Failure(fmt::format("the program did not answer within {:.0f} s", seconds));
    }
    pollfd waiting{.fd = channel_, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, kPollMilliseconds) <= 0) continue;
    std::array<char, 4096> bytes;
    const ssize_t count = recv(channel_, bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Failure("the program has ended");
    received_.append(bytes.data(), static_cast<size_t>(count));
  }
}

Result<Json> Child::Ask(const Json& question, double seconds) {
  PREPACK_TRY(Send(question.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n"));
  PREPACK_TRY_ASSIGN(const std::string line, ReadLine(seconds));
  Json answer = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) {
    return Malformed(name_, "its answer is no JSON object").Found(Printable(line));
  }
  return answer;
}

}  // namespace prepack
