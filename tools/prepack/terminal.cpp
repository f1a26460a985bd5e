#include "terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "prepack/base/isa.h"
#include "prepack/base/status.h"
#include "prepack/base/version.h"
#include "table.h"

namespace prepack::cli {
namespace {

// Empty where it is not set.
std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value(Environment(name));
    if (value.empty()) continue;
    std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::tolower(c); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

size_t TerminalWidth(int file) {
  const std::optional<uint64_t> columns = ParseCount(Environment("COLUMNS"));
  if (columns && *columns != 0) return *columns;
  winsize size{};
  return ioctl(file, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

Display Look(int file) {
  Display display;
  display.is_terminal = isatty(file) == 1;
  if (!display.is_terminal) return display;
  display.colour = Environment("NO_COLOR").empty() && Environment("TERM") != "dumb";
  display.unicode = LocaleIsUtf8();
  display.width = TerminalWidth(file);
  return display;
}

using Displays = std::array<Display, 2>;  // by Stream

Displays& All() {
  static Displays displays = {Look(STDOUT_FILENO), Look(STDERR_FILENO)};
  return displays;
}

std::string_view CodeOf(Tone tone) {
  switch (tone) {
    case Tone::kPlain:
      break;
    case Tone::kGood:
      return "32";
    case Tone::kUnsure:
      return "33";
    case Tone::kBad:
      return "1;31";
  }
  return "";
}

std::string WithCode(std::string_view code, std::string_view text, Stream stream) {
  if (code.empty() || !DisplayOf(stream).colour) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

bool IsContinuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

}  // namespace

void SetColour(std::string_view when) {
  if (when == "auto") return;
  for (Display& display : All()) display.colour = when == "always";
}

const Display& DisplayOf(Stream stream) {
  return All().at(static_cast<size_t>(stream));
}

std::string Paint(Tone tone, std::string_view text, Stream stream) {
  return WithCode(CodeOf(tone), text, stream);
}

std::string PaintTitle(std::string_view text) {
  return WithCode("1", text, Stream::kStdout);
}

size_t Columns(std::string_view text) {
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = std::min(text.find('m', i), text.size());
    } else if (!IsContinuation(text[i])) {
      ++columns;
    }
  }
  return columns;
}

std::string Shortened(std::string_view text, size_t columns) {
  const size_t has = Columns(text);
  if (has <= columns) return std::string(text);
  const size_t kept = columns - std::min<size_t>(columns, 1);  // beside the "…"
  const size_t before = kept / 2;
  const size_t after = has - (kept - before);
  std::string shorter;
  size_t column = 0;  // behind this character
  for (const char c : text) {
    if (!IsContinuation(c)) ++column;
    if (column == before + 1 && !IsContinuation(c)) shorter += "…";
    if (column <= before || column > after) shorter += c;
  }
  return shorter;
}

std::string ToAscii(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kSpellings = {{
      {"×", "x"},
      {"…", "..."},
      {"–", "-"},
      {"−", "-"},
      {"·", "."},
      {"≥", ">="},
      {"≤", "<="},
      {"→", "->"},
      {"⌈", "ceil("},
      {"⌉", ")"},
      {"“", "\""},
      {"”", "\""},
      {"’", "'"},
      {"█", "#"},
  }};
  std::string ascii;
  while (!text.empty()) {
    const auto known = std::ranges::find_if(
        kSpellings, [&](const auto& spelling) { return text.starts_with(spelling.first); });
    const bool is_known = known != kSpellings.end();
    ascii += is_known ? known->second : text.substr(0, 1);
    text.remove_prefix(is_known ? known->first.size() : 1);
  }
  return ascii;
}

}  // namespace prepack::cli

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
  if (options.progress == "json") return ProgressStyle::kJson;
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

std::string ProgressDocument(const ProgressState& state) {
  Json document = {{"kind", "prepack-progress"},
                   {"version", 1},
                   {"stage", state.stage},
                   {"done", state.total == 0 ? state.done : std::min(state.done, state.total)},
                   {"total", state.total},
                   {"seconds", state.seconds}};
  if (!state.item.empty()) document["item"] = state.item;
  return MessageLine(document);
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
  if (stage_.empty()) return;
  if (style_ == ProgressStyle::kJson) return Write(ProgressDocument(State()));
  if (verbose_ || style_ == ProgressStyle::kPlain) Show(StageText(State()));
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
    if (style_ == ProgressStyle::kJson) {
      Write(ProgressDocument(State()));
    } else if (plain) {
      Show(ProgressText(State(), 0));
    } else {
      DrawLine();
    }
  }
}

}  // namespace prepack::cli
