#ifndef PREPACK_TOOLS_PROGRESS_LINE_H_
#define PREPACK_TOOLS_PROGRESS_LINE_H_

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/progress.h"

namespace prepack::cli {

// Shows a Progress as one line on stderr, with rate and time left, while it lives. Only when stderr
// is a terminal and `enabled`: a pipe or a log gets nothing.
class ProgressLine {
 public:
  ProgressLine(const Progress& progress, bool enabled);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

 private:
  void Loop();

  const Progress& progress_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

// The line for `done` of `total` bytes after `seconds`, e.g.
// "packing   45 %  1.2 GB of 2.7 GB  850.0 MB/s  2 s left".
std::string ProgressText(const char* stage, uint64_t done, uint64_t total, double seconds);

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_PROGRESS_LINE_H_
