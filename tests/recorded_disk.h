#pragma once

// Records what a run does to files, and says what a disk may hold of it when the power fails.
//
// Little is taken for granted. The contents of a file and its size are safe once the file was
// flushed; of what was not, each sector may be there or not, and then reads as zeros. Names are
// safe once a folder was flushed after they were changed, and get to the disk in the order in which
// they were changed, as the journals of file systems have it. A tree that is removed goes name by
// name.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "prepack/base/random.h"
#include "prepack/io/posix.h"

namespace prepack::testing {

// What becomes of what was not flushed.
enum class Unflushed : uint8_t { kAllThere, kAllLost, kAnyOfIt };

// A change that outlives its call.
struct RecordedChange {
  posix::Call call = posix::Call::kOpen;
  int fd = -1;
  std::string path;
  std::string to;
  bool truncates = false;
  uint64_t offset = 0;
  std::string bytes;
};

// All changes while it lives. One at a time.
class ChangeRecorder {
 public:
  ChangeRecorder() {
    changes_.clear();
    posix::SetChangeHook([](const posix::Change& change) {
      const std::lock_guard lock(mutex_);
      const auto text = [](const std::filesystem::path* path) {
        return path == nullptr ? std::string() : path->string();
      };
      changes_.push_back(
          {.call = change.call,
           .fd = change.fd,
           .path = text(change.path),
           .to = text(change.to),
           .truncates = change.truncates,
           .offset = change.offset,
           .bytes = {reinterpret_cast<const char*>(change.bytes.data()), change.bytes.size()}});
    });
  }
  ~ChangeRecorder() { posix::SetChangeHook(nullptr); }
  ChangeRecorder(const ChangeRecorder&) = delete;
  ChangeRecorder& operator=(const ChangeRecorder&) = delete;

  const std::vector<RecordedChange>& changes() const { return changes_; }

 private:
  static inline std::mutex mutex_;
  static inline std::vector<RecordedChange> changes_;
};

// What is below a folder: as it was before a recording, and as it may be during that.
class RecordedDisk {
 public:
  // Takes what is in `root` now, which is safe.
  explicit RecordedDisk(const std::filesystem::path& root) : root_(root.string()) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      File file{.is_folder = entry.is_directory()};
      if (!file.is_folder) file.now = ReadAll(entry.path());
      file.safe = file.now;
      begin_[entry.path().string()] = file;
    }
  }

  // Puts into `root` what may be there when the power fails behind the first `count` changes.
  void Restore(const std::vector<RecordedChange>& changes, size_t count, Unflushed what,
               SplitMix64& random) const {
    const Names before = Copy();
    std::map<size_t, FilePtr> made;
    const size_t flushed = Run(changes, count, before, made);
    size_t named = what == Unflushed::kAllThere ? count : flushed;
    if (what == Unflushed::kAnyOfIt) named += random.Below(count - flushed + 1);
    Names names = before;
    for (size_t i = 0; i < named; ++i) ChangeNames(changes[i], i, made, names);
    if (what == Unflushed::kAnyOfIt && named < count) RemoveSome(changes[named], random, names);
    Store(names, what, random);
  }

 private:
  struct File {
    std::string now = {};   // contents as the kernel has them
    std::string safe = {};  // as they were when they were flushed
    bool is_folder = false;
  };
  using FilePtr = std::shared_ptr<File>;
  using Names = std::map<std::string, FilePtr>;  // by path; what is in a folder comes behind it

  static std::string ReadAll(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  Names Copy() const {
    Names names;
    for (const auto& [path, file] : begin_) names[path] = std::make_shared<File>(file);
    return names;
  }

  // The paths of a file or folder with all that is in it.
  static std::vector<std::string> Tree(const Names& names, const std::string& path) {
    std::vector<std::string> found;
    for (const auto& [name, file] : names) {
      if (name == path || name.starts_with(path + "/")) found.push_back(name);
    }
    return found;
  }

  // Takes a tree out, as it will be named at another place.
  static Names Extract(const std::string& path, const std::string& to, Names& names) {
    Names tree;
    for (const std::string& name : Tree(names, path)) {
      tree[to + name.substr(path.size())] = names.at(name);
      names.erase(name);
    }
    return tree;
  }

  // A change of names; `made` has the file that a change has made.
  static void ChangeNames(const RecordedChange& change, size_t index,
                          const std::map<size_t, FilePtr>& made, Names& names) {
    switch (change.call) {
      case posix::Call::kOpen:
      case posix::Call::kMakeFolder:
        if (made.contains(index)) names[change.path] = made.at(index);
        break;
      case posix::Call::kRename: {
        Names moved = Extract(change.path, change.to, names);
        Extract(change.to, "", names);
        names.merge(moved);
        break;
      }
      case posix::Call::kExchange: {
        Names first = Extract(change.path, change.to, names);
        Names second = Extract(change.to, change.path, names);
        names.merge(first);
        names.merge(second);
        break;
      }
      case posix::Call::kLink:
        names[change.to] = names.at(change.path);
        break;
      case posix::Call::kRemove:
        Extract(change.path, "", names);
        break;
      default:
        break;
    }
  }

  static void RemoveSome(const RecordedChange& change, SplitMix64& random, Names& names) {
    if (change.call != posix::Call::kRemove) return;
    for (const std::string& name : Tree(names, change.path)) {
      if (!names.at(name)->is_folder && random.Below(2) == 0) names.erase(name);
    }
  }

  // Makes the changes; gives how many of them were made before a folder was flushed last.
  size_t Run(const std::vector<RecordedChange>& changes, size_t count, Names names,
             std::map<size_t, FilePtr>& made) const {
    size_t flushed = 0;
    std::map<int, FilePtr> open;
    for (size_t i = 0; i < count; ++i) {
      const RecordedChange& change = changes[i];
      const bool makes =
          change.call == posix::Call::kMakeFolder || change.call == posix::Call::kOpen;
      if (makes && change.path.starts_with(root_ + "/") && !names.contains(change.path)) {
        made[i] = std::make_shared<File>();
        made[i]->is_folder = change.call == posix::Call::kMakeFolder;
      }
      ChangeNames(change, i, made, names);
      if (change.call == posix::Call::kOpen) {
        const auto file = names.find(change.path);
        open[change.fd] = file == names.end() ? nullptr : file->second;
        if (change.path == root_) open[change.fd] = std::make_shared<File>(File{.is_folder = true});
        if (change.truncates) open[change.fd]->now.clear();
        continue;
      }
      const FilePtr file = open[change.fd];
      if (file == nullptr) continue;
      if (change.call == posix::Call::kWrite) {
        file->now.resize(std::max(file->now.size(), change.offset + change.bytes.size()));
        std::ranges::copy(change.bytes,
                          file->now.begin() + static_cast<std::ptrdiff_t>(change.offset));
      } else if (change.call == posix::Call::kReserve) {
        file->now.resize(std::max<size_t>(file->now.size(), change.offset));
      } else if (change.call == posix::Call::kResize) {
        file->now.resize(change.offset);
      } else if (change.call == posix::Call::kSync) {
        file->safe = file->now;
        if (file->is_folder) flushed = i + 1;
      }
    }
    return flushed;
  }

  static std::string Contents(const File& file, Unflushed what, SplitMix64& random) {
    constexpr size_t kSector = 512;
    if (what == Unflushed::kAllThere) return file.now;
    if (what == Unflushed::kAllLost) return file.safe;
    std::string contents = file.safe;
    contents.resize(random.Below(2) == 0 ? file.now.size() : file.safe.size());
    for (size_t at = 0; at < contents.size(); at += kSector) {
      if (at >= file.now.size() || random.Below(2) == 0) continue;
      const size_t bytes = std::min({kSector, contents.size() - at, file.now.size() - at});
      contents.replace(at, bytes, file.now, at, bytes);
    }
    return contents;
  }

  void Store(const Names& names, Unflushed what, SplitMix64& random) const {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directory(root_);
    for (const auto& [path, file] : names) {
      if (file->is_folder) {
        std::filesystem::create_directory(path);
      } else {
        std::ofstream(path, std::ios::binary) << Contents(*file, what, random);
      }
    }
  }

  std::string root_;
  std::map<std::string, File> begin_;
};

}  // namespace prepack::testing
