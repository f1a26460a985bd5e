#pragma once

// What takes long to make and is wanted again: entries by key, which their users share. Those that
// were used last are kept, up to so many bytes; others are given back when nobody uses them any
// more.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace prepack {

// All functions are safe from any thread. Entries are made empty: whoever fills one needs a lock of
// its own.
template <typename Key, typename Entry>
class KeptEntries {
 public:
  explicit KeptEntries(uint64_t most_kept) : most_kept_(most_kept) {}

  uint64_t most_kept() const { return most_kept_; }

  // `bytes`: what such an entry takes.
  std::shared_ptr<Entry> FindOrAdd(const Key& key, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    std::erase_if(known_, [](const Known& known) { return known.entry.expired(); });
    const auto known = std::ranges::find(known_, key, &Known::key);
    std::shared_ptr<Entry> entry = known == known_.end() ? nullptr : known->entry.lock();
    if (!entry) {
      entry = std::make_shared<Entry>();
      known_.push_back({.key = key, .entry = entry});
    }
    Keep(entry, bytes);
    return entry;
  }

  // The entry that `part` is a part of, if there is one: they are owned together.
  template <typename Inside>
  std::shared_ptr<Entry> OwnerOf(const std::shared_ptr<Inside>& part) {
    const std::lock_guard lock(mutex_);
    for (const Known& known : known_) {
      std::shared_ptr<Entry> entry = known.entry.lock();
      if (entry && !entry.owner_before(part) && !part.owner_before(entry)) return entry;
    }
    return nullptr;
  }

 private:
  struct Known {
    Key key;
    std::weak_ptr<Entry> entry;
  };
  struct Kept {
    std::shared_ptr<Entry> entry;
    uint64_t bytes = 0;
  };

  // As the last one, and of the others those that were used last, as far as there is room.
  void Keep(std::shared_ptr<Entry> entry, uint64_t bytes) {
    std::erase_if(kept_, [&](const Kept& kept) { return kept.entry == entry; });
    kept_.push_back({.entry = std::move(entry), .bytes = bytes});
    uint64_t left = most_kept_;
    auto first = kept_.end();
    while (first != kept_.begin() && std::prev(first)->bytes <= left) {
      --first;
      left -= first->bytes;
    }
    kept_.erase(kept_.begin(), first);
  }

  const uint64_t most_kept_;
  std::mutex mutex_;
  std::vector<Known> known_;
  std::vector<Kept> kept_;  // the one that was used last is the last
};

}  // namespace prepack
