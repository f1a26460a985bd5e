#include "prepack/convert/delivery.h"

#include <fmt/format.h>

#include <chrono>
#include <span>
#include <string_view>

#include "prepack/base/parallel.h"
#include "prepack/base/progress.h"
#include "prepack/io/output_folder.h"

namespace prepack {
namespace {

constexpr uint64_t kMostRecord = uint64_t{64} << 20;  // of names
constexpr auto kWakeEvery = std::chrono::milliseconds(50);

std::filesystem::path RecordOf(const std::filesystem::path& output) {
  const std::filesystem::path folder = WithoutTrailingSlashes(output);
  return folder.parent_path() / fmt::format(".{}.prepack-delivered", folder.filename().string());
}

}  // namespace

Delivery::~Delivery() {
  stop_ = true;
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status Delivery::Begin(const std::filesystem::path& output, const RunIdentity& identity) {
  if (carrier_ == nullptr) return {};
  const std::filesystem::path path = RecordOf(output);
  const std::string head = IdentityJson(identity).dump() + "\n";
  PREPACK_TRY_ASSIGN(const std::optional<struct stat> there, LookAtLink(path));
  std::string text;
  if (there) {
    PREPACK_TRY_ASSIGN(text, ReadTextFile(path, kMostRecord));
  }
  if (!text.starts_with(head)) {
    PREPACK_TRY(RemoveIfThere(path));
    PREPACK_TRY(WriteTextFile(path, head));
    text = head;
  }
  // A last line without its end was not written whole.
  for (size_t at = head.size(), end = 0; (end = text.find('\n', at)) != std::string::npos;
       at = end + 1) {
    delivered_.insert(text.substr(at, end - at));
    record_end_ = end + 1;
  }
  record_end_ = std::max<uint64_t>(record_end_, head.size());
  PREPACK_TRY_ASSIGN(File record, File::OpenForUpdate(path));
  record_.emplace(std::move(record));
  PREPACK_TRY(record_->Resize(record_end_));
  thread_ = std::thread([this] { Run(); });
  return {};
}

Status Delivery::Note(const std::string& line) {
  PREPACK_TRY(record_->WriteAt(record_end_, std::as_bytes(std::span(line))));
  record_end_ += line.size();
  return record_->Sync();
}

void Delivery::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_ && failure_.ok()) {
    if (waiting_.empty()) {
      changed_.wait_for(lock, kWakeEvery);
      continue;
    }
    const Item item = waiting_.front();
    lock.unlock();
    Status status = CatchExceptions([&]() -> Status {
      PREPACK_TRY(carrier_->Carry(item.first, item.second, stop_));
      return Note(item.first + "\n");
    });
    lock.lock();
    waiting_.pop_front();
    if (!status.ok()) failure_ = std::move(status);
    changed_.notify_all();
  }
}

Status Delivery::Add(const std::string& name, const std::filesystem::path& path) {
  if (carrier_ == nullptr || !delivered_.insert(name).second) return {};
  const std::lock_guard lock(mutex_);
  waiting_.emplace_back(name, path);
  changed_.notify_all();
  return failure_;
}

Status Delivery::Await(const std::string& output) {
  std::unique_lock lock(mutex_);
  while (failure_.ok() && !waiting_.empty()) {
    if (CancellationRequested()) return Interrupted(output);
    changed_.wait_for(lock, kWakeEvery);
  }
  return failure_;
}

Status Delivery::DeliverFolder(const std::filesystem::path& folder, std::string_view last) {
  if (carrier_ == nullptr) return {};
  PREPACK_TRY_ASSIGN(const std::vector<std::string> names, NamesIn(folder));
  for (const std::string& name : names) {
    if (name != last) PREPACK_TRY(Add(name, folder / name));
  }
  PREPACK_TRY(Await(folder.string()));
  PREPACK_TRY(Add(std::string(last), folder / last));
  return Await(folder.string());
}

}  // namespace prepack
