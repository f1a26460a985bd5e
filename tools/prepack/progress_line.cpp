#include "progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "units.h"

namespace prepack::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kInterval = std::chrono::milliseconds(100);  // smooth, and too rare to cost anything
constexpr char kEraseLine[] = "\r\x1b[K";

}  // namespace

std::string ProgressText(const char* stage, uint64_t done, uint64_t total, double seconds) {
  done = std::min(done, total);
  const double share = total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
  std::string text = fmt::format("{:<10} {:3.0f} %  {} of {}", stage, std::floor(100 * share),
                                 HumanBytes(done), HumanBytes(total));
  if (seconds > 0.2 && done > 0) {  // before that the rate is noise
    const double rate = static_cast<double>(done) / seconds;
    text += fmt::format("  {}/s  {} left", HumanBytes(static_cast<uint64_t>(rate)),
                        HumanSeconds(static_cast<double>(total - done) / rate));
  }
  return text;
}

ProgressLine::ProgressLine(const Progress& progress, bool enabled) : progress_(progress) {
  if (enabled && isatty(STDERR_FILENO) == 1) thread_ = std::thread([this] { Loop(); });
}

ProgressLine::~ProgressLine() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
  std::fputs(kEraseLine, stderr);
  std::fflush(stderr);
}

void ProgressLine::Loop() {
  std::string_view stage;
  Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kInterval, [this] { return stop_; })) {
    if (stage != progress_.stage()) {
      stage = progress_.stage();
      start = Clock::now();
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    fmt::print(stderr, "{}{}", kEraseLine,
               ProgressText(progress_.stage(), progress_.done(), progress_.total(), seconds));
    std::fflush(stderr);
  }
}

}  // namespace prepack::cli
