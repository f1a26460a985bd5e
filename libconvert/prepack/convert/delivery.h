#pragma once

// Files of an output that are taken somewhere as soon as they are complete and on the disk, one
// after the other, beside the work. What has been taken is noted in `.OUT.prepack-delivered`, so
// that the next run of the same conversion goes on from there; the file stays, as the only sign
// that all is done.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/convert/source_flow.h"
#include "prepack/io/file.h"
#include "prepack/packed/run_identity.h"

namespace prepack {

class Delivery {
 public:
  // The carrier must outlive it; null: nothing is delivered.
  explicit Delivery(FileCarrier* carrier) : carrier_(carrier) {}
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;
  ~Delivery();

  // First. Files of another conversion count for nothing: their note is replaced.
  Status Begin(const std::filesystem::path& output, const RunIdentity& identity);
  // To be delivered, unless it has been. A failure of an earlier one is returned.
  Status Add(const std::string& name, const std::filesystem::path& path);
  // Waits until all that was added has been delivered; `output` is what an interruption names.
  Status Await(const std::string& output);
  // All files of a folder that have not been delivered, and `last` after all others.
  Status DeliverFolder(const std::filesystem::path& folder, std::string_view last);

 private:
  using Item = std::pair<std::string, std::filesystem::path>;

  void Run();
  Status Note(const std::string& line);

  FileCarrier* carrier_;
  std::optional<File> record_;
  uint64_t record_end_ = 0;
  std::set<std::string, std::less<>> delivered_;  // or on the way

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<Item> waiting_;  // the first one is on the way
  Status failure_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace prepack
