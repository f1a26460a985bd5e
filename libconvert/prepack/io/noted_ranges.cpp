#include "prepack/io/noted_ranges.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace prepack {
namespace {

constexpr uint64_t kLongest = uint64_t{1} << 20;  // more than a reader or a plan asks for at once
// In all: a plan for another checkpoint format reads all scales and zero points, a fiftieth of the
// model.
constexpr uint64_t kMost = uint64_t{64} << 30;

}  // namespace

NotedRanges& NotedRanges::OfProcess() {
  static NotedRanges noted;
  return noted;
}

bool NotedRanges::Note(const std::filesystem::path& file, uint64_t offset, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > kLongest || bytes > kMost - total_) return false;
  uint64_t& known = ranges_[file][offset];
  total_ += bytes - std::min(bytes, known);
  known = std::max(known, bytes);
  return true;
}

bool NotedRanges::empty() const {
  const std::lock_guard lock(mutex_);
  return ranges_.empty();
}

bool NotedRanges::Has(const std::filesystem::path& file, uint64_t offset, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto it = ranges_.find(file);
  if (it == ranges_.end()) return false;
  const auto behind = it->second.lower_bound(offset + bytes);
  // Ranges that begin before it may reach into it, but none is longer than that.
  for (auto range = it->second.lower_bound(offset - std::min(offset, kLongest)); range != behind;
       ++range) {
    if (range->first + range->second > offset) return true;
  }
  return false;
}

std::map<std::filesystem::path, ByteRanges> NotedRanges::Take() {
  const std::lock_guard lock(mutex_);
  total_ = 0;
  return std::exchange(ranges_, {});
}

ByteRanges NotedRanges::Of(const std::filesystem::path& file) const {
  const std::lock_guard lock(mutex_);
  const auto it = ranges_.find(file);
  return it == ranges_.end() ? ByteRanges() : it->second;
}

std::string NotedRanges::Json() const {
  const std::lock_guard lock(mutex_);
  nlohmann::json files = nlohmann::json::object();
  for (const auto& [file, ranges] : ranges_) {
    nlohmann::json& list = files[file.string()] = nlohmann::json::array();
    for (const auto& [offset, bytes] : ranges) list.push_back({offset, bytes});
  }
  const nlohmann::json document = {{"ranges", files}};
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace prepack
