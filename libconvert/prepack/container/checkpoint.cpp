// Opens a checkpoint: where every tensor lies. Index and shards must agree in both directions,
// because loaders disagree about which of them counts.

#include "prepack/container/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/hash.h"
#include "prepack/base/parallel.h"
#include "prepack/base/status.h"
#include "prepack/container/folder_listing.h"
#include "prepack/container/json.h"
#include "prepack/container/shard_index.h"
#include "prepack/io/file.h"

namespace prepack {
namespace fs = std::filesystem;
namespace {

// Far above real sizes, and low enough to read into memory.
constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

// Where quantizers put copies of the quantization config, and Mistral its model config.
constexpr std::array<std::string_view, 5> kSideConfigs = {
    "hf_quant_config.json", "params.json", "quant_config.json", "quantization_config.json",
    "quantize_config.json"};
// The members of config.json that declare how a model is quantized.
constexpr std::array<std::string_view, 2> kDeclarations = {"quantization_config",
                                                           "compression_config"};
constexpr std::string_view kWholeModelName = "model.safetensors";

// If `text` is given, it receives the text of the file.
Result<Json> ReadJsonFile(const fs::path& path, uint64_t max_bytes, const JsonLimits& limits,
                          std::string* text = nullptr) {
  PREPACK_TRY_ASSIGN(std::string read, ReadTextFile(path, max_bytes));
  Result<Json> json = ParseJsonStrict(read, path.string(), limits);
  if (json.ok() && !json->is_object()) {
    return Malformed(path.string(), "not a JSON object")
        .Found(json->type_name())
        .Expected("an object");
  }
  if (json.ok() && text != nullptr) *text = std::move(read);
  return json;
}

Result<Json> ReadConfigFile(const fs::path& path, std::string* text = nullptr) {
  return ReadJsonFile(path, kMaxConfigBytes, {.python_numbers = true}, text);
}

// Does the index name none of the files, which are one whole model? Loaders that ask for that file
// first never look at the index.
bool IsOfOtherShards(const ShardIndex& index, const std::vector<std::string>& present) {
  return present.size() == 1 && present[0] == kWholeModelName &&
         std::ranges::find(index.shards, kWholeModelName) == index.shards.end();
}

}  // namespace

struct Checkpoint::Configs {
  Json config = Json::object();
  std::string text = "{}";
  SideConfigs side_configs;
};

Checkpoint::Checkpoint() : configs_(std::make_shared<const Configs>()) {}

const Json& Checkpoint::config() const {
  return configs_->config;
}

const std::string& Checkpoint::config_text() const {
  return configs_->text;
}

const Checkpoint::SideConfigs& Checkpoint::side_configs() const {
  return configs_->side_configs;
}

Result<Checkpoint> Checkpoint::Open(const fs::path& path) {
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  checkpoint.side_folder_ = path;
  Status status;
  if (is_folder) {
    status = checkpoint.OpenFolder();
  } else if (fs::is_regular_file(path, error) && path.extension() != kShardSuffix) {
    status = FormatOfFile(path.native()).empty()
                 ? Usage(path.string(), "neither a folder nor a .safetensors file")
                       .Hint("Give the folder of the checkpoint")
                 : RefuseFile(path.string(), path.filename().native());
  } else {
    // Opening the path reports whether it is missing or cannot be opened.
    status = checkpoint.OpenFile();
  }
  if (!status.ok()) return status;
  return checkpoint;
}

namespace {

// By name, and those of one name by file.
bool IsBefore(const StoredTensor& a, const StoredTensor& b) {
  const int difference = a.name.compare(b.name);
  return difference != 0 ? difference < 0 : a.file < b.file;
}

// A file and its tensors, in order.
struct OpenedFile {
  CheckpointFile file;
  std::shared_ptr<const std::string> names;
  std::vector<StoredTensor> tensors;
};

// Moves the names into one text, which is smaller than a string for each.
template <typename Named>
std::shared_ptr<const std::string> JoinNames(const std::vector<Named>& named) {
  auto names = std::make_shared<std::string>();
  size_t bytes = 0;
  for (const Named& one : named) bytes += one.name.size();
  names->reserve(bytes);
  for (const Named& one : named) names->append(one.name);
  return names;
}

Result<OpenedFile> OpenShard(const fs::path& path, size_t number) {
  PREPACK_TRY_ASSIGN(File file, File::OpenWeights(path));
  PREPACK_TRY_ASSIGN(SafetensorsHeader header, ReadSafetensorsHeader(file));
  OpenedFile opened{.file = {.name = path.filename().string(),
                             .file = std::move(file),
                             .tensors = header.tensors.size(),
                             .data_start = header.data_start},
                    .names = JoinNames(header.tensors),
                    .tensors = {}};
  opened.tensors.reserve(header.tensors.size());
  std::string_view names = *opened.names;
  for (TensorInfo& info : header.tensors) {
    opened.tensors.push_back({.name = names.substr(0, info.name.size()),
                              .dtype = info.dtype,
                              .file = static_cast<uint32_t>(number),
                              .shape = std::move(info.shape),
                              .offset = header.data_start + info.begin,
                              .bytes = info.bytes()});
    names.remove_prefix(info.name.size());
  }
  std::ranges::sort(opened.tensors, IsBefore);
  return opened;
}

// Merges neighbours until one run is left. `ends` are those of the runs, which are in order.
void MergeRuns(std::vector<size_t> ends, std::vector<StoredTensor>& tensors) {
  const auto at = [&](size_t i) { return tensors.begin() + static_cast<std::ptrdiff_t>(i); };
  while (ends.size() > 1) {
    std::vector<size_t> merged;
    for (size_t i = 0; i < ends.size(); i += 2) {
      const size_t begin = merged.empty() ? 0 : merged.back();
      const size_t end = ends[std::min(i + 1, ends.size() - 1)];
      if (ends[i] != end) std::inplace_merge(at(begin), at(ends[i]), at(end), IsBefore);
      merged.push_back(end);
    }
    ends = std::move(merged);
  }
}

}  // namespace

// A single .safetensors file.
Status Checkpoint::OpenFile() {
  PREPACK_TRY_ASSIGN(OpenedFile opened, OpenShard(path_, 0));
  files_.push_back(std::move(opened.file));
  names_.push_back(std::move(opened.names));
  tensors_ = std::move(opened.tensors);
  return OrderTensors();
}

Status Checkpoint::OpenFolder() {
  PREPACK_TRY_ASSIGN(Listing listing, ListFolder(path_));
  const bool has_copy = HasOwnShards(listing);
  if (has_copy) LeaveOutConsolidated(listing.indexes, {}, listing.left_out);
  // An index may use any names for its shards.
  bool has_index = listing.indexes.size() == 1;
  const fs::path index_path = has_index ? path_ / listing.indexes.front() : fs::path();
  ShardIndex index;
  if (has_index && !listing.shards.empty()) {
    PREPACK_TRY_ASSIGN(index, ReadShardIndex(index_path));
  }
  if (has_copy) {
    LeaveOutConsolidated(listing.shards, {index.shards.begin(), index.shards.end()},
                         listing.left_out);
  }
  PREPACK_TRY(CheckNumberOfFiles(path_, listing));
  if (has_index && IsOfOtherShards(index, listing.shards)) {
    has_index = false;
    stale_index_ = listing.indexes.front();
  }
  side_files_ = std::move(listing.side_files);
  left_out_ = std::move(listing.left_out);

  PREPACK_TRY(ReadConfigs(listing.has_config));

  if (has_index) {
    PREPACK_TRY(CheckShards(index_path, index, listing.shards));
  }
  PREPACK_TRY(AddFiles(listing.shards));
  PREPACK_TRY(OrderTensors());
  return has_index ? CheckIndex(index_path, index, *this) : Status();
}

Status Checkpoint::ReadConfigs(bool has_config) {
  auto configs = std::make_shared<Configs>();
  if (has_config) {
    PREPACK_TRY_ASSIGN(Json config, ReadConfigFile(path_ / kConfigName, &configs->text));
    configs->config = std::move(config);
  }
  for (const std::string_view name : kSideConfigs) {
    if (std::ranges::find(side_files_, name) == side_files_.end()) continue;
    PREPACK_TRY_ASSIGN(Json config, ReadConfigFile(path_ / name));
    configs->side_configs.emplace(name, std::move(config));
  }
  configs_ = std::move(configs);
  return {};
}

Result<Checkpoint> Checkpoint::OpenConfigs(const fs::path& folder) {
  PREPACK_TRY_ASSIGN(Listing listing, ListFolder(folder));
  if (!listing.has_config) {
    return Malformed(folder.string(), "no config.json in the folder")
        .Hint("The folder of a Hugging Face model has it");
  }
  Checkpoint checkpoint;
  checkpoint.path_ = folder;
  checkpoint.side_folder_ = folder;
  checkpoint.side_files_ = std::move(listing.side_files);
  PREPACK_TRY(checkpoint.ReadConfigs(true));
  return checkpoint;
}

// Declarations of `like` are left out, and the quantizer's own configs with them.
Result<Checkpoint> Checkpoint::Assemble(fs::path path, std::vector<CheckpointFile> files,
                                        std::vector<StoredTensor> tensors, const Checkpoint* like,
                                        const std::string& quantization,
                                        std::shared_ptr<const CheckpointOrigin> origin) {
  Checkpoint checkpoint;
  checkpoint.path_ = std::move(path);
  checkpoint.files_ = std::move(files);
  checkpoint.tensors_ = std::move(tensors);
  checkpoint.names_.push_back(JoinNames(checkpoint.tensors_));
  std::string_view names = *checkpoint.names_.back();
  for (StoredTensor& tensor : checkpoint.tensors_) {
    tensor.name = names.substr(0, tensor.name.size());
    names.remove_prefix(tensor.name.size());
  }
  checkpoint.origin_ = std::move(origin);
  std::string text;
  if (like != nullptr) {
    checkpoint.side_folder_ = like->side_folder_;
    checkpoint.side_files_ = like->side_files_;
    std::erase_if(checkpoint.side_files_, [](const std::string& name) {
      return name != "params.json" &&
             std::ranges::find(kSideConfigs, std::string_view(name)) != kSideConfigs.end();
    });
    for (const TextMember& member : TextMembers(like->config_text())) {
      if (std::ranges::find(kDeclarations, member.key) != kDeclarations.end()) continue;
      text += fmt::format("{}: {},\n", member.key_text, member.value);
    }
  }
  auto configs = std::make_shared<Configs>();
  configs->text = fmt::format("{{{}\"quantization_config\": {}}}\n", text, quantization);
  PREPACK_TRY_ASSIGN(configs->config, ParseJsonStrict(configs->text, checkpoint.path_.string(),
                                                      {.python_numbers = true}));
  checkpoint.configs_ = std::move(configs);
  std::ranges::sort(checkpoint.tensors_, IsBefore);
  PREPACK_TRY(checkpoint.OrderTensors());
  return checkpoint;
}

Status Checkpoint::AddFiles(const std::vector<std::string>& names) {
  std::vector<std::optional<OpenedFile>> opened(names.size());
  PREPACK_TRY(ParallelFor(names.size(), ThreadCount(0), [&](size_t i, unsigned) -> Status {
    PREPACK_TRY_ASSIGN(opened[i], OpenShard(path_ / names[i], i));
    return {};
  }));
  size_t count = 0;
  for (std::optional<OpenedFile>& shard : opened) {
    count += shard->tensors.size();
    files_.push_back(std::move(shard->file));
    names_.push_back(std::move(shard->names));
  }
  // Mostly the names of a file are those of some layers, so that little is left to be merged.
  std::erase_if(opened, [](const auto& shard) { return shard->tensors.empty(); });
  std::ranges::sort(opened, IsBefore, [](const auto& shard) -> const StoredTensor& {
    return shard->tensors.front();
  });
  tensors_.reserve(count);
  std::vector<size_t> ends;
  for (std::optional<OpenedFile>& shard : opened) {
    std::ranges::move(shard->tensors, std::back_inserter(tensors_));
    shard.reset();
    ends.push_back(tensors_.size());
  }
  MergeRuns(std::move(ends), tensors_);
  return {};
}

namespace {

// Are the first `bytes` bytes the same? Headers may have 100 MB.
Result<bool> BeginAlike(const File& a, const File& b, uint64_t bytes) {
  constexpr uint64_t kPiece = uint64_t{1} << 20;
  std::vector<std::byte> of_a(std::min(kPiece, bytes));
  std::vector<std::byte> of_b(of_a.size());
  for (uint64_t offset = 0; offset < bytes; offset += kPiece) {
    const size_t piece = static_cast<size_t>(std::min(kPiece, bytes - offset));
    PREPACK_TRY(a.ReadAt(offset, std::span(of_a).first(piece)));
    PREPACK_TRY(b.ReadAt(offset, std::span(of_b).first(piece)));
    if (!std::equal(of_a.begin(), of_a.begin() + static_cast<std::ptrdiff_t>(piece), of_b.begin()))
      return false;
  }
  return true;
}

}  // namespace

Status Checkpoint::Reopen(size_t file) {
  CheckpointFile& known = files_[file];
  const fs::path path = fs::is_directory(path_) ? path_ / known.name : path_;
  PREPACK_TRY_ASSIGN(File now, File::OpenWeights(path));
  bool alike = now.size() == known.file.size();
  if (alike) {
    PREPACK_TRY_ASSIGN(alike, BeginAlike(now, known.file, known.data_start));
  }
  if (!alike) {
    return Malformed(path.string(), "it is not the file whose headers the conversion began with")
        .Found(fmt::format("{} bytes", now.size()))
        .Expected(fmt::format("{} bytes, with the same header", known.file.size()))
        .Hint("Was another revision uploaded? Fetch all headers again, and begin anew");
  }
  known.file = std::move(now);
  return {};
}

Status Checkpoint::OrderTensors() {
  const auto twin = std::ranges::adjacent_find(tensors_, {}, &StoredTensor::name);
  if (twin == tensors_.end()) {
    FillBuckets();
    has_biases_ = std::ranges::any_of(
        tensors_, [](const StoredTensor& tensor) { return tensor.name.ends_with(".bias"); });
    return {};
  }
  return Malformed(path_.string(), fmt::format("tensor {} is in two shards", twin->name))
      .Found(fmt::format("the tensor in {} and {}", files_[twin->file].name,
                         files_[std::next(twin)->file].name))
      .Hint("Loaders disagree about which one counts; remove the stale shard");
}

namespace {

uint32_t TagOf(const Hash128& hash) {
  return static_cast<uint32_t>(hash.low);
}

}  // namespace

// About one tensor each.
size_t Checkpoint::BucketOf(const Hash128& hash) const {
  return static_cast<size_t>((hash.high >> 32) * (bucket_starts_.size() - 1) >> 32);
}

void Checkpoint::FillBuckets() {
  bucket_starts_.assign(tensors_.size() + 1, 0);
  buckets_.resize(tensors_.size());
  std::vector<Bucketed> all;
  std::vector<uint32_t> bucket_of;
  all.reserve(tensors_.size());
  bucket_of.reserve(tensors_.size());
  for (const StoredTensor& tensor : tensors_) {
    const Hash128 hash = Xxh3(tensor.name);
    all.push_back({.tag = TagOf(hash), .tensor = static_cast<uint32_t>(all.size())});
    bucket_of.push_back(static_cast<uint32_t>(BucketOf(hash)));
    ++bucket_starts_[bucket_of.back() + 1];
  }
  std::partial_sum(bucket_starts_.begin(), bucket_starts_.end(), bucket_starts_.begin());
  std::vector<uint32_t> next(bucket_starts_.begin(), std::prev(bucket_starts_.end()));
  for (size_t i = 0; i < all.size(); ++i) buckets_[next[bucket_of[i]]++] = all[i];
  for (size_t i = 0; i < tensors_.size(); ++i) {
    std::sort(buckets_.begin() + bucket_starts_[i], buckets_.begin() + bucket_starts_[i + 1]);
  }
}

const StoredTensor* Checkpoint::Find(std::string_view name) const {
  if (buckets_.empty()) return nullptr;
  const Hash128 hash = Xxh3(name);
  const auto start = bucket_starts_.begin() + static_cast<std::ptrdiff_t>(BucketOf(hash));
  const std::span bucket = std::span(buckets_).subspan(*start, *std::next(start) - *start);
  const uint32_t tag = TagOf(hash);
  // Of a name that is not there, no tensor is looked at: each would have to come from memory.
  const auto found = std::lower_bound(bucket.begin(), bucket.end(), name,
                                      [&](const Bucketed& entry, std::string_view wanted) {
                                        if (entry.tag != tag) return entry.tag < tag;
                                        return tensors_[entry.tensor].name < wanted;
                                      });
  if (found == bucket.end() || found->tag != tag || tensors_[found->tensor].name != name) {
    return nullptr;
  }
  return &tensors_[found->tensor];
}

const StoredTensor* Checkpoint::FindAfter(const StoredTensor* other, std::string_view name) const {
  constexpr size_t kLookedAt = 4;  // modules have few tensors
  const size_t next = other == nullptr ? 0 : NumberOf(*this, *other) + 1;
  for (size_t i = next; i < std::min(next + kLookedAt, tensors_.size()); ++i) {
    if (tensors_[i].name == name) return &tensors_[i];
  }
  return Find(name);
}

bool Checkpoint::IsHere(const StoredTensor& tensor) const {
  return !files_[tensor.file].file.headers_only();
}

bool Checkpoint::IsHere() const {
  return std::ranges::none_of(files_,
                              [](const CheckpointFile& file) { return file.file.headers_only(); });
}

std::string Checkpoint::Where(const StoredTensor& tensor) const {
  return fmt::format("{}: tensor {}", files_[tensor.file].name, tensor.name);
}

uint64_t Checkpoint::total_bytes() const {
  uint64_t total = 0;
  for (const StoredTensor& tensor : tensors_) total += tensor.bytes;
  return total;
}

Status Checkpoint::Read(const StoredTensor& tensor, uint64_t offset,
                        std::span<std::byte> out) const {
  if (offset > tensor.bytes || out.size() > tensor.bytes - offset) {
    return Usage(Where(tensor), "read outside the tensor")
        .Found(fmt::format("{} bytes at {}", out.size(), offset))
        .Expected(fmt::format("at most {} bytes", tensor.bytes));
  }
  return files_[tensor.file].file.ReadAt(tensor.offset + offset, out);
}

Result<ByteRuns> Checkpoint::InFile(const StoredTensor& tensor, const ByteRuns& runs) const {
  const std::optional<uint64_t> span = runs.Span();
  const bool inside = span && runs.offset <= tensor.bytes && *span <= tensor.bytes - runs.offset;
  if (runs.runs != 0 && !inside) {
    return Usage(Where(tensor), "read outside the tensor")
        .Found(fmt::format("{} runs of {} bytes from {}", runs.runs, runs.run_bytes, runs.offset))
        .Expected(fmt::format("at most {} bytes", tensor.bytes));
  }
  ByteRuns in_file = runs;
  in_file.offset += tensor.offset;
  return in_file;
}

Status Checkpoint::ReadRuns(const StoredTensor& tensor, const ByteRuns& runs,
                            std::span<std::byte> out) const {
  PREPACK_TRY_ASSIGN(const ByteRuns in_file, InFile(tensor, runs));
  if (out.size() != CheckedMul(runs.runs, runs.run_bytes)) {
    return Usage(Where(tensor), "read into a buffer of another size")
        .Found(fmt::format("{} bytes", out.size()))
        .Expected(fmt::format("{} runs of {} bytes", runs.runs, runs.run_bytes));
  }
  return files_[tensor.file].file.ReadRunsAt(in_file, out);
}

Status Checkpoint::VisitRuns(const StoredTensor& tensor, const ByteRuns& runs,
                             ByteVisitor work) const {
  PREPACK_TRY_ASSIGN(const ByteRuns in_file, InFile(tensor, runs));
  return files_[tensor.file].file.VisitRunsAt(in_file, work);
}

Status Checkpoint::Visit(const StoredTensor& tensor, uint64_t offset, uint64_t bytes,
                         ByteVisitor work) const {
  if (offset > tensor.bytes || bytes > tensor.bytes - offset) {
    return Usage(Where(tensor), "read outside the tensor")
        .Found(fmt::format("{} bytes from {}", bytes, offset))
        .Expected(fmt::format("at most {} bytes", tensor.bytes));
  }
  return files_[tensor.file].file.VisitAt(tensor.offset + offset, bytes, work);
}

}  // namespace prepack
