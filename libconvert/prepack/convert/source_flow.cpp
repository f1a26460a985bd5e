#include "prepack/convert/source_flow.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "prepack/base/parallel.h"
#include "prepack/base/progress.h"
#include "prepack/io/file.h"
#include "prepack/io/noted_ranges.h"
#include "prepack/io/posix.h"

namespace prepack {
namespace {

namespace fs = std::filesystem;

constexpr auto kLookEvery = std::chrono::milliseconds(50);  // for a request to stop
constexpr uint64_t kMostAtOnce = 16;                        // shards that are fetched

// Ascending.
std::vector<size_t> FilesOf(const std::vector<const StoredTensor*>& tensors) {
  std::vector<size_t> files;
  files.reserve(tensors.size());
  for (const StoredTensor* tensor : tensors) files.push_back(tensor->file);
  std::ranges::sort(files);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

}  // namespace

Status CheckFlow(const FlowOptions& flow, bool flush, bool resume) {
  if ((flow.consume || flow.done != nullptr) && !flush) {
    return Usage("--no-flush",
                 "what was given away, or is to be removed, must be on the disk first")
        .Hint("Leave it out with --consume and --done");
  }
  if (!flow.consume || resume) return {};
  return Usage("--consume", "what an interrupted run has made of removed shards must not be lost")
      .Expected("--resume on the same line");
}

Status CheckIsHere(const Checkpoint& checkpoint) {
  for (const CheckpointFile& file : checkpoint.files()) {
    std::byte next{};
    if (file.file.present() == file.file.size()) continue;
    PREPACK_TRY(file.file.ReadAt(file.file.present(), {&next, 1}));
  }
  return {};
}

Status BringHeaders(const FlowOptions& options, const fs::path& source,
                    FunctionRef<Status()> plan) {
  // First what readers want, then the converter of llama.cpp, and what it computes with.
  constexpr int kMostRounds = 8;
  if (options.fetch == nullptr) return {};
  for (int round = 0; round < kMostRounds; ++round) {
    PREPACK_TRY_ASSIGN(Checkpoint checkpoint, Checkpoint::Open(source));
    if (checkpoint.IsHere()) return {};
    NotedRanges& noted = NotedRanges::OfProcess();
    noted.SetMode(NotedRanges::Mode::kMissing);
    // An error may come of the zeros; another one comes again without them.
    (void)plan();
    noted.SetMode(NotedRanges::Mode::kNothing);
    const auto wanted = noted.Take();
    if (wanted.empty()) return {};
    const Part whole;
    SourceFlow flow(options, whole, checkpoint, nullptr);
    PREPACK_TRY(flow.BringRanges(wanted));
  }
  return Unsupported(source.string(), "planning wants more of the shards each time");
}

SourceFlow::SourceFlow(const FlowOptions& options, const Part& part, Checkpoint& checkpoint,
                       SourceObserver* observer)
    : options_(options),
      part_(part),
      checkpoint_(checkpoint),
      observer_(observer),
      shards_(checkpoint.files().size()) {}

SourceFlow::~SourceFlow() {
  stop_ = true;
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  if (folder_fd_ >= 0) ::close(folder_fd_);
}

fs::path SourceFlow::PathOf(size_t file) const {
  return checkpoint_.path() / checkpoint_.files()[file].name;
}

// A lock on the folder itself leaves nothing behind. Where folders cannot be locked, nobody is kept
// out.
Status SourceFlow::LockSource() {
  folder_fd_ = posix::Open(checkpoint_.path(), O_RDONLY | O_DIRECTORY);
  if (folder_fd_ == -ENOTDIR) {
    return Usage(checkpoint_.path().string(), "shards come and go in a folder")
        .Expected("the folder of a checkpoint");
  }
  if (folder_fd_ < 0)
    return SystemError(checkpoint_.path().string(), "cannot open it", -folder_fd_);
  if (posix::LockSoon(folder_fd_) != -EWOULDBLOCK) return {};
  return Usage(checkpoint_.path().string(), "another prepack fetches or removes its shards")
      .Hint("Wait until it is done, or give each run a folder of headers of its own");
}

// What a link leads to may belong to another revision, too.
Status SourceFlow::CheckLinks() const {
  if (!options_.consume) return {};
  for (size_t file = 0; file < shards_.size(); ++file) {
    PREPACK_TRY_ASSIGN(const std::optional<struct stat> found, LookAtLink(PathOf(file)));
    if (!found || S_ISREG(found->st_mode)) continue;
    return Usage(PathOf(file).string(), "--consume removes files, and this is a link")
        .Hint("Convert without --consume, or give it a folder of files");
  }
  return {};
}

void SourceFlow::AddUnit(size_t unit, bool finished, const std::vector<size_t>& files) {
  const size_t batch = files.empty() ? 0 : files.back();
  batches_[batch].push_back(unit);
  for (const size_t file : files) {
    Shard& shard = shards_[file];
    shard.needed = true;
    if (finished) continue;
    shard.first_batch = std::min(batch, shard.first_batch.value_or(batch));
    shard.last_batch = std::max(batch, shard.last_batch);
  }
}

Status SourceFlow::Begin(size_t units, SourcesOfUnit sources_of, const FinishedUnits& finished) {
  if (options_.MovesSource()) PREPACK_TRY(LockSource());
  if (options_.fetch != nullptr) PREPACK_TRY(RemovePartials());
  PREPACK_TRY(CheckLinks());
  batches_.resize(std::max<size_t>(1, shards_.size()));
  for (size_t unit = 0; unit < units; ++unit) {
    AddUnit(unit, finished.contains(unit), FilesOf(sources_of(unit)));
  }
  for (size_t file = 0; file < shards_.size(); ++file) {
    if (!checkpoint_.files()[file].file.headers_only()) {
      shards_[file].state = State::kHere;
      shards_[file].was_here = true;
    }
    if (shards_[file].first_batch) order_.push_back(file);
  }
  std::ranges::stable_sort(order_, {}, [&](size_t file) { return *shards_[file].first_batch; });
  if (options_.fetch == nullptr) return {};
  const uint64_t threads = std::min({options_.ahead + 1, kMostAtOnce, uint64_t{order_.size()}});
  for (uint64_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { FetchInTurns(); });
  }
  return {};
}

// What the batch needs comes at once, the rest as long as so many are not here. Under the mutex.
std::optional<size_t> SourceFlow::NextToFetch() const {
  const auto is_here = [](const Shard& shard) {
    return shard.state != State::kAway && shard.state != State::kGone;
  };
  const auto here = static_cast<uint64_t>(std::ranges::count_if(shards_, is_here));
  for (const size_t file : order_) {
    if (shards_[file].state != State::kAway) continue;
    if (*shards_[file].first_batch <= batch_ || here <= options_.ahead) return file;
    return std::nullopt;
  }
  return std::nullopt;
}

void SourceFlow::FetchInTurns() {
  std::unique_lock lock(mutex_);
  while (!stop_ && failure_.ok()) {
    const std::optional<size_t> file = NextToFetch();
    if (!file) {
      changed_.wait_for(lock, kLookEvery);
      continue;
    }
    shards_[*file].state = State::kComing;
    lock.unlock();
    Status status = CatchExceptions([&] { return FetchShard(*file); });
    lock.lock();
    shards_[*file].state = State::kArrived;
    if (!status.ok() && failure_.ok()) failure_ = std::move(status);
    changed_.notify_all();
  }
}

// Of this process: a command of a run that was killed may still write to its own.
fs::path SourceFlow::PartialOf(size_t file) const {
  return PartialSibling(PathOf(file) += fmt::format(".{}", ::getpid()));
}

Status SourceFlow::RemovePartials() const {
  PREPACK_TRY_ASSIGN(const std::vector<std::string> names, NamesIn(checkpoint_.path()));
  for (size_t file = 0; file < shards_.size(); ++file) {
    const std::string begin = fmt::format(".{}.", checkpoint_.files()[file].name);
    for (const std::string& name : names) {
      if (!name.starts_with(begin) || !name.ends_with(".prepack-partial")) continue;
      const int removed = posix::RemoveTree(checkpoint_.path() / name);
      if (removed < 0) return SystemError(name, "cannot remove what an earlier run left", -removed);
    }
  }
  return {};
}

// A shard that a power failure has spoilt must not look whole: it is flushed before it has its
// name.
Status SourceFlow::FetchShard(size_t file) {
  const fs::path path = PathOf(file);
  const fs::path partial = PartialOf(file);
  PREPACK_TRY(options_.fetch->Carry(checkpoint_.files()[file].name, partial, stop_));
  PREPACK_TRY_ASSIGN(const std::optional<struct stat> came, LookAtLink(partial));
  PREPACK_TRY_ASSIGN(const std::optional<struct stat> in_place, LookAtLink(path));
  if (!came && !in_place) {
    return SystemError(path.string(), "--fetch succeeded, but has not brought the file", ENOENT)
        .Expected(partial.string())
        .Hint("The command is to write to {path}");
  }
  if (came) PREPACK_TRY(CheckRegularFile(partial, came->st_mode));
  PREPACK_TRY_ASSIGN(File fetched, File::OpenForUpdate(came ? partial : path));
  PREPACK_TRY(fetched.Sync());
  if (!came) return {};
  const int result = posix::Rename(partial, path);
  if (result < 0) return SystemError(path.string(), "cannot rename a file to it", -result);
  return SyncFolder(checkpoint_.path());
}

Status SourceFlow::Reopen(size_t file) {
  PREPACK_TRY(checkpoint_.Reopen(file));
  return observer_ == nullptr ? Status() : observer_->SourceFileMoved(file);
}

// One that is not what was planned does not stay.
Status SourceFlow::TakeFetched(size_t file) {
  Status status = Reopen(file);
  if (!status.ok()) posix::RemoveTree(PathOf(file));
  return status;
}

// Files are opened anew on this thread alone, and none that another one reads.
Status SourceFlow::TakeArrived() {
  for (size_t file = 0; file < shards_.size(); ++file) {
    if (shards_[file].state != State::kArrived) continue;
    PREPACK_TRY(TakeFetched(file));
    shards_[file].state = State::kHere;
  }
  return {};
}

Status SourceFlow::BringRanges(const std::map<fs::path, ByteRanges>& wanted) {
  PREPACK_TRY(LockSource());
  PREPACK_TRY(RemovePartials());
  for (size_t file = 0; file < shards_.size(); ++file) {
    const auto found = wanted.find(PathOf(file));
    if (found == wanted.end()) continue;
    ByteRanges ranges = checkpoint_.files()[file].file.ranges();
    for (const auto& [offset, bytes] : found->second) {
      ranges[offset] = std::max(ranges[offset], bytes);
    }
    PREPACK_TRY(FetchShard(file));
    PREPACK_TRY(TakeFetched(file));
    PREPACK_TRY(WriteHeadersFile(checkpoint_.files()[file].file, ranges));
    if (options_.consume) PREPACK_TRY(RemoveShard(file));
  }
  return {};
}

Status SourceFlow::Await(size_t batch, const std::string& output) {
  std::unique_lock lock(mutex_);
  batch_ = batch;
  changed_.notify_all();
  while (true) {
    if (CancellationRequested()) return Interrupted(output);
    PREPACK_TRY(failure_);
    PREPACK_TRY(TakeArrived());
    const auto is_missing = [&](size_t file) {
      const Shard& shard = shards_[file];
      return shard.first_batch <= batch && batch <= shard.last_batch && shard.state != State::kHere;
    };
    // Without --fetch, reading them says what is wrong.
    if (options_.fetch == nullptr || std::ranges::none_of(order_, is_missing)) return {};
    changed_.wait_for(lock, kLookEvery);
  }
}

// Of a part, only what was fetched for it: other parts may need the rest.
bool SourceFlow::MayGo(size_t file, size_t batch) const {
  const Shard& shard = shards_[file];
  const bool is_done = !shard.first_batch || shard.last_batch <= batch;
  return is_done && shard.state == State::kHere && (part_.IsWhole() || shard.needed);
}

Status SourceFlow::Release(size_t batch) {
  const std::lock_guard lock(mutex_);
  for (size_t file = 0; file < shards_.size(); ++file) {
    if (!MayGo(file, batch)) continue;
    if (options_.consume) PREPACK_TRY(Consume(file));
    shards_[file].state = State::kGone;
  }
  changed_.notify_all();
  return {};
}

// Its headers first, and then the file has no name any more, and nobody has it open.
Status SourceFlow::Consume(size_t file) {
  const CheckpointFile& shard = checkpoint_.files()[file];
  // What was fetched has the headers that it was planned from beside it.
  if (shards_[file].was_here) {
    ByteRanges ranges = NotedRanges::OfProcess().Of(shard.file.path());
    ranges[0] = std::max(ranges[0], shard.data_start);
    PREPACK_TRY(WriteHeadersFile(shard.file, ranges));
  }
  return RemoveShard(file);
}

Status SourceFlow::RemoveShard(size_t file) {
  PREPACK_TRY(RemoveIfThere(PathOf(file)));
  PREPACK_TRY(SyncFolder(checkpoint_.path()));
  return Reopen(file);
}

}  // namespace prepack
