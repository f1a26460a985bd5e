// Reads the index without a DOM: that of a model with half a million tensors has 57 MB of text. As
// headers are, it is scanned if it is plain, and read by SAX events if it is not.

#include "prepack/container/shard_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "prepack/base/hash.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/json.h"
#include "prepack/container/plain_json.h"
#include "prepack/io/file.h"

namespace prepack {
namespace {

constexpr uint64_t kMaxIndexBytes = uint64_t{128} << 20;  // a million tensors
constexpr size_t kMaxShards = 99'999;                     // the largest number with five digits
constexpr size_t kMaxIndexValues = 4'000'000;
constexpr size_t kMaxIndexDepth = 32;
constexpr std::string_view kWeightMap = "weight_map";

// The index may only name files beside it.
bool IsPlainShardName(std::string_view name) {
  return name.size() > kShardSuffix.size() && name.ends_with(kShardSuffix) &&
         name.find('/') == std::string_view::npos && name.find('\\') == std::string_view::npos &&
         Printable(name, name.size()) == name;
}

class IndexSax final : public JsonSax {
 public:
  // `file` is how errors name it.
  IndexSax(std::string file, ShardIndex& index)
      : JsonSax(kMaxIndexDepth),
        file_(std::move(file)),
        where_map_(fmt::format("{}: {}", file_, kWeightMap)),
        index_(index) {}

  // The same as Run for an index that is as plain as those of all known writers. False: it is not,
  // and this and the index are of no use any more.
  bool Scan();
  // What only the whole text can show.
  Status Finish();

  bool null() override { return Scalar("null"); }
  bool boolean(bool /*value*/) override { return Scalar("boolean"); }
  bool number_integer(number_integer_t /*value*/) override { return Scalar("number"); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return Scalar("number"); }
  bool number_float(number_float_t /*value*/, const std::string& /*text*/) override {
    return Scalar("number");
  }
  bool string(std::string& value) override;
  bool start_object(size_t elements) override;
  bool key(std::string& name) override;
  bool end_object() override;
  bool start_array(size_t elements) override;
  bool end_array() override;

 private:
  // Is the next value one of the map's, and is it the map?
  bool IsEntry() const { return in_map_ && depth() == 2; }
  bool IsMap() const { return depth() == 1 && root_is_object_ && key_ == kWeightMap; }
  bool Count();
  bool Scalar(std::string_view type);
  void Note(Status status);
  void NoteType(std::string_view type);
  void AddEntry(std::string_view shard);
  uint32_t NumberOf(std::string_view shard);
  bool ScanMap(PlainJson& json);

  const std::string file_;
  const std::string where_map_;
  ShardIndex& index_;
  Status status_;  // the first thing that is wrong with a text that is JSON
  size_t values_ = 0;
  bool root_is_object_ = false;
  bool has_map_ = false;
  bool in_map_ = false;
  std::string key_;        // the last of the root
  std::string_view name_;  // the last of the map
  uint32_t offset_ = 0;    // behind it
  uint32_t last_shard_ = 0;
  std::map<std::string, uint32_t, std::less<>> numbers_;  // of shards
  // Those of each object that is open, but the map's.
  std::vector<std::set<std::string, std::less<>>> keys_;
};

void IndexSax::Note(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void IndexSax::NoteType(std::string_view type) {
  if (depth() == 0) {
    Note(Malformed(file_, "not a JSON object").Found(type).Expected("an object"));
  } else if (IsMap()) {
    has_map_ = true;
    Note(Malformed(where_map_, "wrong type of value, or empty")
             .Found(type)
             .Expected("an object with the shard of every tensor"));
  } else if (IsEntry()) {
    Note(Malformed(fmt::format("{}: {}", where_map_, name_), "wrong type of value")
             .Found(type)
             .Expected("the name of a shard"));
  }
}

bool IndexSax::Count() {
  return ++values_ <= kMaxIndexValues || FailHere("too many values");
}

bool IndexSax::Scalar(std::string_view type) {
  NoteType(type);
  return Count();
}

bool IndexSax::string(std::string& value) {
  if (!IsEntry()) return Scalar("string");
  AddEntry(value);
  return Count();
}

void IndexSax::AddEntry(std::string_view shard) {
  if (index_.shards.empty() || index_.shards[last_shard_] != shard) last_shard_ = NumberOf(shard);
  index_.entries.push_back({.tensor = name_, .shard = last_shard_, .offset = offset_});
}

uint32_t IndexSax::NumberOf(std::string_view shard) {
  if (const auto known = numbers_.find(shard); known != numbers_.end()) return known->second;
  const auto number = static_cast<uint32_t>(index_.shards.size());
  numbers_.emplace(shard, number);
  if (!IsPlainShardName(shard)) {
    Note(Malformed(fmt::format("{}: {}", where_map_, name_), "not the name of a shard")
             .Found(fmt::format("'{}'", Printable(shard)))
             .Expected("a plain file name that ends in .safetensors"));
  }
  if (index_.shards.size() == kMaxShards) {
    Note(Malformed(where_map_, "too many shards").Expected(fmt::format("at most {}", kMaxShards)));
  }
  index_.shards.emplace_back(shard);
  return number;
}

bool IndexSax::start_object(size_t /*elements*/) {
  if (depth() == 0) {
    root_is_object_ = true;
  } else if (IsMap()) {
    in_map_ = has_map_ = true;
  } else {
    NoteType("object");
  }
  if (!Count() || !Enter()) return false;
  if (!IsEntry()) keys_.emplace_back();
  return true;
}

bool IndexSax::key(std::string& name) {
  if (IsEntry()) {
    // As it stands in the text, unless there are escapes in it.
    const size_t start = offset() - 1 - name.size();
    name_ = std::string_view(*index_.text).substr(start, name.size());
    if (name_ != name) name_ = index_.decoded.emplace_back(name);
    offset_ = static_cast<uint32_t>(offset());
    return true;
  }
  if (!keys_.back().insert(name).second) {
    return FailHere(fmt::format("duplicate key \"{}\"", Printable(name)));
  }
  if (depth() == 1) key_ = name;
  return true;
}

bool IndexSax::end_object() {
  if (IsEntry()) {
    in_map_ = false;
  } else {
    keys_.pop_back();
  }
  Leave();
  return true;
}

bool IndexSax::start_array(size_t /*elements*/) {
  NoteType("array");
  return Count() && Enter();
}

bool IndexSax::end_array() {
  Leave();
  return true;
}

bool IndexSax::ScanMap(PlainJson& json) {
  return TakeObject(json, [&](std::string_view tensor) {
    name_ = tensor;
    offset_ = static_cast<uint32_t>(tensor.data() + tensor.size() + 1 - index_.text->data());
    const std::optional<std::string_view> shard = json.String();
    if (shard) AddEntry(*shard);
    return shard && index_.entries.size() < kMaxIndexValues / 2;
  });
}

bool IndexSax::Scan() {
  PlainJson json(*index_.text);
  std::vector<std::string_view> seen;
  const auto is_new = [&](std::string_view key) {
    constexpr size_t kMost = 64;  // writers have two
    if (seen.size() == kMost || std::ranges::find(seen, key) != seen.end()) return false;
    seen.push_back(key);
    return true;
  };
  const auto number = [&](std::string_view key) { return is_new(key) && json.Number(); };
  bool has_metadata = false;
  const bool scanned = TakeObject(json, [&](std::string_view key) {
    if (key == kWeightMap) return !std::exchange(has_map_, true) && ScanMap(json);
    return key == "metadata" && !std::exchange(has_metadata, true) && TakeObject(json, number);
  });
  return scanned && json.AtEnd();
}

void SortByTensor(std::vector<ShardIndex::Entry>& entries) {
  std::ranges::sort(entries, {}, [](const ShardIndex::Entry& entry) {
    return std::tuple(entry.tensor, entry.offset);
  });
}

Status IndexSax::Finish() {
  std::vector<ShardIndex::Entry>& entries = index_.entries;
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const ShardIndex::Entry& entry : entries) names.push_back(entry.tensor);
  if (!HashesDiffer(names)) {
    SortByTensor(entries);
    const auto twin = std::ranges::adjacent_find(entries, {}, &ShardIndex::Entry::tensor);
    if (twin != entries.end()) {
      return Malformed(fmt::format("{}: byte {}", file_, std::next(twin)->offset),
                       fmt::format("duplicate key \"{}\"", Printable(twin->tensor)));
    }
  }
  if (!status_.ok()) return std::move(status_);
  if (!has_map_) return Malformed(where_map_, "the field is missing");
  if (!entries.empty()) return {};
  return Malformed(where_map_, "wrong type of value, or empty")
      .Found("an empty object")
      .Expected("an object with the shard of every tensor");
}

}  // namespace

Result<ShardIndex> ReadShardIndex(const std::filesystem::path& path) {
  PREPACK_TRY_ASSIGN(std::string text, ReadTextFile(path, kMaxIndexBytes));
  ShardIndex index;
  index.text = std::make_unique<const std::string>(std::move(text));
  IndexSax scan(path.string(), index);
  if (scan.Scan()) {
    PREPACK_TRY(scan.Finish());
    return index;
  }
  ShardIndex parsed;
  parsed.text = std::move(index.text);
  IndexSax sax(path.string(), parsed);
  PREPACK_TRY(sax.Run(*parsed.text, path.string()));
  PREPACK_TRY(sax.Finish());
  return parsed;
}

Status CheckShards(const std::filesystem::path& index_path, const ShardIndex& index,
                   const std::vector<std::string>& present) {
  const std::set<std::string_view> named(index.shards.begin(), index.shards.end());
  for (const std::string_view shard : named) {
    if (std::binary_search(present.begin(), present.end(), shard)) continue;
    return Malformed((index_path.parent_path() / shard).string(), "the shard is missing")
        .Expected(fmt::format("it, as {} says", index_path.filename().string()))
        .Hint("Is the download complete?");
  }
  for (const std::string& shard : present) {
    if (named.contains(shard)) continue;
    return Malformed((index_path.parent_path() / shard).string(),
                     "the index does not list this shard")
        .Hint(
            fmt::format("Move it out of the folder, or repair {}", index_path.filename().string()));
  }
  return {};
}

namespace {

constexpr std::string_view kStaleIndex = "The index is stale: it belongs to other shards";

Status NotInIndex(const std::string& where, const std::string& shard) {
  return Malformed(where, "the tensor is not in the index")
      .Found(fmt::format("the tensor in {}", shard))
      .Hint(kStaleIndex);
}

Status NotInAnyShard(const std::string& where, const std::string& shard) {
  return Malformed(where, "no shard contains the tensor")
      .Expected(fmt::format("the tensor in {}", shard))
      .Hint(kStaleIndex);
}

// Does every entry name a tensor of that shard, and so every tensor an entry? Tensors are found by
// hashes, which is faster than to put the index in order.
bool IndexAgrees(const ShardIndex& index, const Checkpoint& checkpoint) {
  if (index.entries.size() != checkpoint.tensors().size()) return false;
  const StoredTensor* tensor = nullptr;
  return std::ranges::all_of(index.entries, [&](const ShardIndex::Entry& entry) {
    tensor = checkpoint.FindAfter(tensor, entry.tensor);
    return tensor != nullptr && checkpoint.files()[tensor->file].name == index.shards[entry.shard];
  });
}

// The first place where they differ; both are in order.
Status WhereTheyDiffer(const std::filesystem::path& index_path, const ShardIndex& index,
                       const Checkpoint& checkpoint) {
  const auto where = [&](std::string_view tensor) {
    return fmt::format("{}: tensor {}", index_path.string(), tensor);
  };
  auto entry = index.entries.begin();
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const std::string& shard = checkpoint.files()[tensor.file].name;
    if (entry == index.entries.end() || tensor.name < entry->tensor) {
      return NotInIndex(where(tensor.name), shard);
    }
    const std::string& expected = index.shards[entry->shard];
    if (entry->tensor < tensor.name) return NotInAnyShard(where(entry->tensor), expected);
    if (expected != shard) {
      return Malformed(where(tensor.name), "the tensor is in another shard")
          .Found(shard)
          .Expected(fmt::format("{}, as the index says", expected))
          .Hint(kStaleIndex);
    }
    ++entry;
  }
  if (entry == index.entries.end()) return {};
  return NotInAnyShard(where(entry->tensor), index.shards[entry->shard]);
}

}  // namespace

Status CheckIndex(const std::filesystem::path& index_path, ShardIndex& index,
                  const Checkpoint& checkpoint) {
  if (IndexAgrees(index, checkpoint)) return {};
  SortByTensor(index.entries);
  return WhereTheyDiffer(index_path, index, checkpoint);
}

}  // namespace prepack
