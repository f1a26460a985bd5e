#include "prepack/io/mapping.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "prepack/base/parallel.h"
#include "prepack/io/posix.h"

namespace prepack {
namespace {

// The visit that this thread is making. The handler runs on the same thread, in the middle of it.
struct VisitUnderWay {
  std::byte* begin = nullptr;  // of the mapping, and so of a page
  const std::byte* end = nullptr;
  std::atomic<bool>* broken = nullptr;
};
thread_local VisitUnderWay visit_under_way;

// The visit whose bytes any thread may read. Set before such threads begin and cleared after they
// have ended, so that the handler never reads it while it changes.
std::mutex shared_visit_mutex;
VisitUnderWay shared_visit;
std::atomic<bool> has_shared_visit = false;

struct sigaction previous_action = {};

bool Covers(const VisitUnderWay& visit, const std::byte* address) {
  return visit.broken != nullptr && address >= visit.begin && address < visit.end;
}

// Async-signal-safe: it only compares addresses, maps memory and stores flags.
void OnBusError(int signal, siginfo_t* info, void* /*context*/) {
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  VisitUnderWay visit = visit_under_way;
  if (!Covers(visit, address) && has_shared_visit.load()) visit = shared_visit;
  if (signal == SIGBUS && Covers(visit, address)) {
    const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const auto offset = static_cast<size_t>(address - visit.begin);
    void* page = visit.begin + offset / page_bytes * page_bytes;
    const int saved_errno = errno;
    void* zeros = mmap(page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = saved_errno;
    if (zeros == page) {
      visit.broken->store(true);
      return;
    }
  }
  // Not ours: the instruction runs again, under the action that was there before.
  sigaction(SIGBUS, &previous_action, nullptr);
}

void InstallHandler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &action, &previous_action);
  });
}

}  // namespace

std::unique_ptr<Mapping> Mapping::Map(int fd, uint64_t offset, uint64_t bytes, int& error) {
  InstallHandler();
  void* begin = nullptr;
  error = -posix::MapForRead(fd, offset, bytes, begin);
  if (error != 0) return nullptr;
  return std::unique_ptr<Mapping>(new Mapping(static_cast<std::byte*>(begin), offset, bytes));
}

Mapping::~Mapping() {
  munmap(begin_, bytes_);
}

bool Mapping::VisitByThisThread(uint64_t offset, ByteVisitor work) const {
  // Pages that were lost once read as zeros from then on: no second signal would tell.
  if (broken_.load()) return false;
  const VisitUnderWay outer = visit_under_way;
  visit_under_way = {.begin = begin_, .end = begin_ + bytes_, .broken = &broken_};
  std::atomic_signal_fence(std::memory_order_seq_cst);
  work(begin_ + (offset - offset_));
  std::atomic_signal_fence(std::memory_order_seq_cst);
  visit_under_way = outer;
  return !broken_.load();
}

bool Mapping::Visit(uint64_t offset, ByteVisitor work, VisitThreads threads) const {
  if (threads == VisitThreads::kThisOne) return VisitByThisThread(offset, work);
  const std::lock_guard lock(shared_visit_mutex);
  shared_visit = {.begin = begin_, .end = begin_ + bytes_, .broken = &broken_};
  has_shared_visit.store(true);
  const bool whole = VisitByThisThread(offset, work);
  has_shared_visit.store(false);
  return whole;
}

namespace {

// A multiple of any page size, so that a window can begin there.
constexpr uint64_t kWindowAlignment = 64ULL * 1024;

std::shared_ptr<const Mapping> MapWindow(const MappedWindows::OpenFile& file, uint64_t offset,
                                         uint64_t bytes, uint64_t ahead, int& error) {
  const uint64_t begin = offset / kWindowAlignment * kWindowAlignment;
  const uint64_t wanted = offset + bytes - begin + ahead;
  return Mapping::Map(file.fd, begin, std::min(wanted, file.bytes - begin), error);
}

}  // namespace

size_t MostKeptWindows() {
  constexpr size_t kOfThread = 6;
  static const size_t most = kOfThread * std::max(2U, ThreadCount(0));
  return most;
}

MappedWindows& MappedWindows::OfProcess() {
  // Never destroyed: files may be closed when the process ends.
  static auto* const windows = new MappedWindows;
  return *windows;
}

std::shared_ptr<const Mapping> MappedWindows::Find(const OpenFile& file, uint64_t offset,
                                                   uint64_t bytes, uint64_t ahead, int& error) {
  const std::lock_guard lock(mutex_);
  error = 0;
  for (auto window = windows_.rbegin(); window != windows_.rend(); ++window) {
    if (window->file != file.number || !window->mapping->Covers(offset, bytes)) continue;
    std::rotate(window.base() - 1, window.base(), windows_.end());
    return windows_.back().mapping;
  }
  if (windows_.size() == MostKeptWindows()) windows_.erase(windows_.begin());
  std::shared_ptr<const Mapping> mapping = MapWindow(file, offset, bytes, ahead, error);
  if (error == ENOMEM) {  // the address space is full: make room, and ask for no more than needed
    windows_.clear();
    mapping = MapWindow(file, offset, bytes, 0, error);
  }
  if (mapping != nullptr) windows_.push_back({file.number, mapping});
  return mapping;
}

void MappedWindows::Forget(uint64_t file) {
  const std::lock_guard lock(mutex_);
  std::erase_if(windows_, [file](const Window& window) { return window.file == file; });
}

size_t MappedWindows::size() const {
  const std::lock_guard lock(mutex_);
  return windows_.size();
}

}  // namespace prepack
