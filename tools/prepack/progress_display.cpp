#include "progress_display.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/isa.h"
#include "base/status.h"
#include "base/version.h"
#include "terminal.h"
#include "units.h"

namespace prepack::cli {
namespace {

// Smooth, and too rare to cost anything.
constexpr auto kLineInterval = std::chrono::milliseconds(100);
constexpr auto kPlainInterval = std::chrono::seconds(5);
constexpr std::string_view kEraseRest = "\x1b[K";
constexpr std::string_view kClearLine = "\r\x1b[K";
constexpr size_t kLeastItem = 12;  // columns that still say something

// At once, so that a terminal has no half of it.
void Write(std::string_view text) {
  const std::string shown = DisplayOf(Stream::kStderr).unicode ? std::string(text) : ToAscii(text);
  std::fwrite(shown.data(), 1, shown.size(), stderr);
  std::fflush(stderr);
}

std::string RateText(uint64_t bytes, double seconds) {
  return HumanBytes(static_cast<uint64_t>(static_cast<double>(bytes) / seconds)) + "/s";
}

}  // namespace

ProgressStyle ProgressStyleOf(const CommonOptions& options, bool is_terminal) {
  if (options.quiet || options.progress == "none") return ProgressStyle::kNone;
  if (options.progress == "plain") return ProgressStyle::kPlain;
  return is_terminal ? ProgressStyle::kLine : ProgressStyle::kNone;
}

std::string ProgressText(const ProgressState& state, size_t width) {
  if (state.total == 0) return fmt::format("{} …", state.stage);  // nobody knows how long
  const uint64_t done = std::min(state.done, state.total);
  const double share = static_cast<double>(done) / static_cast<double>(state.total);
  std::string text = fmt::format("{:<10} {:3.0f} %  {} of {}", state.stage, std::floor(100 * share),
                                 HumanBytes(done), HumanBytes(state.total));
  if (state.seconds > 0.2 && done > 0) {  // before that the rate is noise
    const double left = static_cast<double>(state.total - done) / static_cast<double>(done);
    text += fmt::format("  {}  {} left", RateText(done, state.seconds),
                        HumanSeconds(state.seconds * left));
  }
  const size_t used = Columns(text) + 2;
  if (state.item.empty() || (width != 0 && used + kLeastItem > width)) {
    return width == 0 ? text : Shortened(text, width);
  }
  const std::string item = Printable(state.item);
  return text + "  " + (width == 0 ? item : Shortened(item, width - used));
}

std::string StageText(const ProgressState& state) {
  std::string text = fmt::format("{:<10} {:.1f} s", state.stage, state.seconds);
  if (state.done == 0 || state.seconds <= 0) return text;
  return fmt::format("{}  {}  {}", text, HumanBytes(state.done),
                     RateText(state.done, state.seconds));
}

ProgressDisplay::ProgressDisplay(const CommonOptions& options)
    : style_(ProgressStyleOf(options, DisplayOf(Stream::kStderr).is_terminal)),
      verbose_(options.verbose) {
  if (verbose_) {
    // One that cannot be chosen is an error of the run.
    const Result<Isa> isa = ChooseIsa();
    Show(fmt::format("prepack {}, instructions: {}", kVersion, isa.ok() ? IsaName(*isa) : "-"));
  }
  if (style_ != ProgressStyle::kNone) thread_ = std::thread([this] { Loop(); });
}

void ProgressDisplay::Stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    EndStage();
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  if (line_is_there_) Write(kClearLine);
}

void ProgressDisplay::StageBegins(const char* stage) {
  const std::lock_guard lock(mutex_);
  EndStage();
  stage_ = stage;
  item_.clear();
  start_ = Clock::now();
}

void ProgressDisplay::ItemBegins(std::string_view item) {
  const std::lock_guard lock(mutex_);
  if (item == item_) return;
  item_ = item;
  if (verbose_) Show(fmt::format("{} {}", stage_, Printable(item)));
  if (style_ == ProgressStyle::kLine && !line_is_there_) DrawLine();
}

void ProgressDisplay::EndStage() {
  if (stage_.empty() || (!verbose_ && style_ != ProgressStyle::kPlain)) return;
  Show(StageText(State()));
}

void ProgressDisplay::Show(std::string_view line) {
  Write(fmt::format("{}{}\n", line_is_there_ ? kClearLine : "", line));
  line_is_there_ = false;
}

// What stood there is written over, and only the rest erased: nothing flickers.
void ProgressDisplay::DrawLine() {
  const std::string line = ProgressText(State(), DisplayOf(Stream::kStderr).width);
  Write(fmt::format("\r{}{}", line, kEraseRest));
  line_is_there_ = true;
}

ProgressState ProgressDisplay::State() const {
  return {.stage = stage_,
          .done = progress_.done(),
          .total = progress_.total(),
          .seconds = std::chrono::duration<double>(Clock::now() - start_).count(),
          .item = item_};
}

void ProgressDisplay::Loop() {
  const bool plain = style_ == ProgressStyle::kPlain;
  const auto interval = plain ? Clock::duration(kPlainInterval) : Clock::duration(kLineInterval);
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, interval, [this] { return stop_; })) {
    if (stage_.empty()) continue;
    if (plain) {
      Show(ProgressText(State(), 0));
    } else {
      DrawLine();
    }
  }
}

}  // namespace prepack::cli
