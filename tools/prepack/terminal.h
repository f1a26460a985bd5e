#pragma once

// What stdout and stderr can show: colours, characters beyond ASCII, and how many columns.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "command.h"
#include "prepack/base/progress.h"
#include "prepack/report/page.h"

namespace prepack::cli {

struct Display {
  bool is_terminal = false;
  bool colour = false;
  // False only for a terminal in another charset than UTF-8: files and pipes get UTF-8.
  bool unicode = true;
  size_t width = 0;  // columns; 0: no limit
};

enum class Stream : uint8_t { kStdout, kStderr };

// --color: "always", "never", or "auto", by which a terminal has colours unless NO_COLOR is set (to
// anything) or TERM is "dumb". What was shown before is not changed.
void SetColour(std::string_view when);

// As the stream, the environment (NO_COLOR, TERM, COLUMNS, LC_ALL, LC_CTYPE, LANG) and SetColour
// say.
const Display& DisplayOf(Stream stream);

// `text` in the colour of its tone, where the stream has colours.
std::string Paint(Tone tone, std::string_view text, Stream stream = Stream::kStdout);
// The head of a table, for stdout.
std::string PaintTitle(std::string_view text);

// Columns that UTF-8 text takes, as far as we write it: colours take none.
size_t Columns(std::string_view text);
// `text`, with its middle left out for "…" when it takes more columns. It must have no colours.
std::string Shortened(std::string_view text, size_t columns);
// What we write beyond ASCII, in ASCII: "×" is "x". Other characters stay as they are.
std::string ToAscii(std::string_view text);

}  // namespace prepack::cli

namespace prepack::cli {

// --progress and --verbose: what a long run shows on stderr while it goes on.

enum class ProgressStyle : uint8_t {
  kNone,
  kLine,   // one line of a terminal, which changes
  kPlain,  // a new line every few seconds, and at the end of a stage
  kJson,   // a document per line for programs, ten times a second and at the end of a stage
};

// What the options ask for: by default a line on a terminal, and nothing elsewhere.
ProgressStyle ProgressStyleOf(const CommonOptions& options, bool is_terminal);

// How far a stage is.
struct ProgressState {
  std::string_view stage;
  uint64_t done = 0;
  uint64_t total = 0;
  double seconds = 0;          // since it began
  std::string_view item = {};  // a module, or the like; may be empty
};

// E.g. "packing     45 %  1.2 GB of 2.7 GB  850.0 MB/s  2 s left  model.layers.3.mlp.up_proj".
// The item is shortened, or left out, to stay below `width` columns (0: no limit).
std::string ProgressText(const ProgressState& state, size_t width);
// The same for programs: schemas/message.schema.json.
std::string ProgressDocument(const ProgressState& state);
// The line for a stage that has ended, e.g. "packing    2.3 s  2.7 GB  1.2 GB/s".
std::string StageText(const ProgressState& state);

// Shows the Progress that it holds until Stop, or its end.
class ProgressDisplay : private ProgressObserver {
 public:
  explicit ProgressDisplay(const CommonOptions& options);
  ~ProgressDisplay() override { Stop(); }

  Progress& progress() { return progress_; }
  // Leaves no line behind. Nothing may report progress any more.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;

  void StageBegins(const char* stage) override;
  void ItemBegins(std::string_view item) override;

  // With the lock held.
  void EndStage();
  void Show(std::string_view line);
  void DrawLine();
  ProgressState State() const;

  void Loop();

  Progress progress_{this};
  const ProgressStyle style_;
  const bool verbose_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::string stage_;  // empty before the first one
  std::string item_;
  bool line_is_there_ = false;  // on the terminal, and the cursor at its end
  Clock::time_point start_;
  std::thread thread_;
};

}  // namespace prepack::cli
