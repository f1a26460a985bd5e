#pragma once

// The shards of a source that come while it is converted, and go when nothing needs them any more,
// for a disk that is smaller than the model.
//
// Units are done in batches, one for each shard of the source: those that need this shard and
// perhaps earlier ones. A batch waits for its shards, and the shards of later batches come
// meanwhile. After a batch, when all its output is on the disk, the shards that no later unit needs
// may go. What stays of a shard is a file of headers (io/file.h), so that the next run can plan and
// find out what is left.
//
// A shard is fetched beside its place, flushed, and renamed. It must have the size and the header
// that the plan was made from. If a run ends at any moment, each shard is there, or its headers
// are.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "prepack/base/function_ref.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/resume.h"
#include "prepack/io/noted_ranges.h"
#include "prepack/packed/conversion_observer.h"
#include "prepack/packed/run_identity.h"

namespace prepack {

// Brings a file to where it is wanted, or takes a copy of it somewhere: what that means is not for
// the library to know.
class FileCarrier {
 public:
  FileCarrier() = default;
  FileCarrier(const FileCarrier&) = delete;
  FileCarrier& operator=(const FileCarrier&) = delete;
  virtual ~FileCarrier() = default;

  // `name`: plain file name; `path`: where the file is, or is to be. Gives up soon after `stop` is
  // set. From several threads at a time.
  virtual Status Carry(const std::string& name, const std::filesystem::path& path,
                       const std::atomic<bool>& stop) = 0;
};

struct FlowOptions {
  FileCarrier* fetch = nullptr;  // brings shards of the source; null: they are here
  uint64_t ahead = 1;            // how many shards may be here beside the one that is packed
  bool consume = false;          // removes shards when all that needs them is on the disk
  FileCarrier* done = nullptr;   // takes every file of the output when it is complete; null: none

  bool MovesSource() const { return fetch != nullptr || consume; }
  bool InBatches() const { return MovesSource() || done != nullptr; }
};

// kUsage for options with which something would be lost that has been removed or given away.
Status CheckFlow(const FlowOptions& flow, bool flush, bool resume);

// A run that begins anew removes what an interrupted one has left: perhaps all that there is of
// shards that it has consumed. kUnsupported unless all of the source is here.
Status CheckIsHere(const Checkpoint& checkpoint);

// While it is there, what is read of whole shards is noted: the headers that stay of a shard need
// what is read of it up to the plan, because the next run plans again.
class ReadingsNoted {
 public:
  ReadingsNoted() { NotedRanges::OfProcess().SetMode(NotedRanges::Mode::kRead); }
  ~ReadingsNoted() { NotedRanges::OfProcess().SetMode(NotedRanges::Mode::kNothing); }
  ReadingsNoted(const ReadingsNoted&) = delete;
  ReadingsNoted& operator=(const ReadingsNoted&) = delete;
};

// Makes the headers of shards that are not here hold all that `plan` reads, which opens the source
// anew each time that it is called: what it still lacks, it gets as zeros. These shards are
// fetched, one at a time; with `consume`, only their headers stay.
Status BringHeaders(const FlowOptions& options, const std::filesystem::path& source,
                    FunctionRef<Status()> plan);

class SourceFlow {
 public:
  // All arguments must outlive it; the observer may be null.
  SourceFlow(const FlowOptions& options, const Part& part, Checkpoint& checkpoint,
             SourceObserver* observer);
  SourceFlow(const SourceFlow&) = delete;
  SourceFlow& operator=(const SourceFlow&) = delete;
  ~SourceFlow();

  // Fetches these shards for the sake of some ranges, and adds them to their headers.
  Status BringRanges(const std::map<std::filesystem::path, ByteRanges>& wanted);
  // First: cuts the units into batches, makes sure that no other process moves the source, and
  // begins to fetch. kUsage if shards are to go that are links.
  Status Begin(size_t units, SourcesOfUnit sources_of, const FinishedUnits& finished);

  size_t batches() const { return batches_.size(); }
  std::span<const size_t> UnitsOf(size_t batch) const { return batches_[batch]; }
  // Until all is here that the batch needs; `output` is what an interruption names.
  Status Await(size_t batch, const std::string& output);
  // The output of all batches up to this one is on the disk, and so is the journal.
  Status Release(size_t batch);
  // All batches are done.
  Status ReleaseAll() { return Release(batches_.size()); }

 private:
  enum class State : uint8_t { kAway, kComing, kArrived, kHere, kGone };
  struct Shard {
    State state = State::kAway;
    bool was_here = false;              // when the conversion was planned
    bool needed = false;                // by a unit of this part
    std::optional<size_t> first_batch;  // that needs it, of those that are left
    size_t last_batch = 0;
  };

  void AddUnit(size_t unit, bool finished, const std::vector<size_t>& files);
  Status LockSource();
  Status CheckLinks() const;
  std::filesystem::path PathOf(size_t file) const;
  std::filesystem::path PartialOf(size_t file) const;
  Status RemovePartials() const;
  std::optional<size_t> NextToFetch() const;
  void FetchInTurns();
  Status FetchShard(size_t file);
  Status TakeArrived();
  Status Reopen(size_t file);
  Status TakeFetched(size_t file);
  Status RemoveShard(size_t file);
  bool MayGo(size_t file, size_t batch) const;
  Status Consume(size_t file);

  const FlowOptions& options_;
  const Part& part_;
  Checkpoint& checkpoint_;
  SourceObserver* observer_;
  int folder_fd_ = -1;                        // locked
  std::vector<std::vector<size_t>> batches_;  // units, ascending
  std::vector<size_t> order_;  // files that are needed, in the order of their batches

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<Shard> shards_;  // one per file of the checkpoint
  size_t batch_ = 0;           // that is waited for or done
  Status failure_;
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace prepack
