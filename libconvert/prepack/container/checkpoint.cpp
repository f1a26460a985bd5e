// Opens a checkpoint folder: which files are weights, where every tensor lies, and which links may
// be followed. Index and shards must agree in both directions, because loaders disagree about which
// of them counts.

#include "prepack/container/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/hash.h"
#include "prepack/base/parallel.h"
#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/container/shard_index.h"
#include "prepack/io/file.h"
#include "prepack/io/output_folder.h"
#include "prepack/io/posix.h"

namespace prepack {
namespace fs = std::filesystem;
namespace {

struct AllowedPlaces {
  fs::path folder;
  fs::path blobs;  // empty: the folder is not a snapshot of a hub cache
};

AllowedPlaces PlacesOf(fs::path folder) {
  const fs::path snapshots = folder.parent_path();
  const bool is_snapshot = snapshots.filename() == "snapshots";
  return {std::move(folder), is_snapshot ? snapshots.parent_path() / "blobs" : fs::path()};
}

Status CheckLink(const fs::path& link, const AllowedPlaces& allowed) {
  PREPACK_TRY_ASSIGN(const fs::path target, ResolveLinks(link));
  if (IsInside(target, allowed.folder)) return {};
  if (!allowed.blobs.empty() && IsInside(target, allowed.blobs)) return {};
  return Malformed(link.string(), "the symbolic link leads out of the checkpoint")
      .Found(target.string())
      .Expected("a file in this folder or in the blobs of a hub cache")
      .Hint("If you trust the file, copy it into the folder (cp -L)");
}

}  // namespace

Status CheckSourceLinks(const fs::path& source, std::span<const fs::path> links) {
  if (links.empty()) return {};
  PREPACK_TRY_ASSIGN(const fs::path folder, ResolveLinks(source));
  const AllowedPlaces allowed = PlacesOf(folder);
  for (const fs::path& link : links) {
    PREPACK_TRY(CheckLink(link, allowed));
  }
  return {};
}

namespace fs = std::filesystem;
namespace {

// Far above real sizes, and low enough to read into memory.
constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

constexpr std::string_view kConfigName = "config.json";
// Where quantizers put copies of the quantization config, and Mistral its model config.
constexpr std::array<std::string_view, 5> kSideConfigs = {
    "hf_quant_config.json", "params.json", "quant_config.json", "quantization_config.json",
    "quantize_config.json"};
// The members of config.json that declare how a model is quantized.
constexpr std::array<std::string_view, 2> kDeclarations = {"quantization_config",
                                                           "compression_config"};
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::string_view kWholeModelName = "model.safetensors";
constexpr std::string_view kAnyIndexSuffix = ".index.json";
// The prefix of the files in Mistral's own copy of a model.
constexpr std::string_view kConsolidated = "consolidated";
// The same weights in other formats. They are not side files: the packed folder must not contain
// the model twice.
constexpr std::array<std::string_view, 7> kOtherWeights = {".bin",  ".pt", ".pth",    ".gguf",
                                                           ".onnx", ".h5", ".msgpack"};

// "GGUF", "PyTorch" …: the format of a file of weights, by the end of its name; empty if unknown.
std::string_view FormatOfFile(std::string_view name) {
  if (name.ends_with(".gguf")) return "GGUF";
  if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth")) return "PyTorch";
  if (name.ends_with(".onnx")) return "ONNX";
  if (name.ends_with(".h5") || name.ends_with(".msgpack")) return "TensorFlow or Flax";
  return "";
}

Status RefuseFile(std::string_view where, std::string_view file) {
  const std::string_view format = FormatOfFile(file);
  return Unsupported(where, fmt::format("{} weights are not supported", format))
      .Found(Printable(file))
      .Expected("*.safetensors")
      .Hint(format == "GGUF" ? "llama.cpp reads GGUF as it is; otherwise quantize the float model"
                             : "Convert the weights to safetensors with the tool that made them")
      .Id("container-unsupported");
}

// The plain names in a folder, in ascending order and by role. Hidden files are left out.
struct Listing {
  std::vector<std::string> shards;
  std::vector<std::string> indexes;
  std::vector<std::string> side_files;
  std::vector<std::string> other_weights;
  std::vector<std::string> left_out;  // see Checkpoint::left_out
  bool has_config = false;
};

bool IsOtherWeights(std::string_view name) {
  return std::ranges::any_of(kOtherWeights,
                             [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// Weights of which only headers are here count under their own names.
std::string WithoutHeadersSuffix(std::string name) {
  if (!name.ends_with(kHeadersSuffix)) return name;
  std::string weights = name.substr(0, name.size() - kHeadersSuffix.size());
  return weights.ends_with(kShardSuffix) || IsOtherWeights(weights) ? weights : name;
}

void Classify(std::string name, Listing& listing) {
  const auto ends_with = [&name](std::string_view suffix) { return name.ends_with(suffix); };
  if (name == kConfigName) {
    listing.has_config = true;
  } else if (ends_with(kShardSuffix)) {
    listing.shards.push_back(std::move(name));
  } else if (ends_with(kIndexSuffix)) {
    listing.indexes.push_back(std::move(name));
  } else if (IsOtherWeights(name)) {
    listing.left_out.push_back(name);
    listing.other_weights.push_back(std::move(name));
  } else if (ends_with(kAnyIndexSuffix)) {
    listing.left_out.push_back(std::move(name));
  } else if (name != kManifestName) {
    listing.side_files.push_back(std::move(name));
  }
}

struct Entry {
  mode_t mode = 0;  // of the target of a link, because hub caches use links
  bool is_link = false;
};

Result<Entry> LookAtEntry(const fs::path& path) {
  struct stat info {};
  int result = posix::LookAtLink(path, info);
  const bool is_link = result >= 0 && S_ISLNK(info.st_mode);
  if (is_link) result = posix::Look(path, info);
  if (result >= 0) return Entry{.mode = info.st_mode, .is_link = is_link};
  if (result == -ENOENT) {
    return Malformed(path.string(), "the symbolic link points to a file that does not exist")
        .Hint("Is the download complete?");
  }
  if (result == -ELOOP) return Malformed(path.string(), "the symbolic link leads to itself");
  return SystemError(path.string(), "cannot examine it", -result);
}

Result<Listing> ListFolder(const fs::path& folder) {
  PREPACK_TRY_ASSIGN(std::vector<std::string> names, NamesIn(folder));
  Listing listing;
  std::vector<fs::path> links;
  for (std::string& name : names) {
    if (name.starts_with('.')) continue;
    const fs::path path = folder / name;
    PREPACK_TRY_ASSIGN(const Entry entry, LookAtEntry(path));
    const bool is_ours =
        name.ends_with(kShardSuffix) || name.ends_with(kIndexSuffix) || name == kConfigName;
    if (S_ISDIR(entry.mode) && !is_ours) {
      listing.left_out.push_back(name + "/");
      continue;
    }
    PREPACK_TRY(CheckRegularFile(path, entry.mode));
    if (entry.is_link) links.push_back(path);
    Classify(WithoutHeadersSuffix(std::move(name)), listing);
  }
  // One that has arrived still has its headers beside it.
  for (std::vector<std::string>* found :
       {&listing.shards, &listing.other_weights, &listing.left_out}) {
    std::ranges::sort(*found);
    found->erase(std::unique(found->begin(), found->end()), found->end());
  }
  PREPACK_TRY(CheckSourceLinks(folder, links));
  return listing;
}

bool IsConsolidated(std::string_view name) {
  return name.starts_with(kConsolidated);
}

// Whether one of the shards is Hugging Face's, which makes consolidated ones another copy of the
// model.
bool HasOwnShards(const Listing& listing) {
  return listing.has_config && !std::ranges::all_of(listing.shards, IsConsolidated);
}

// Leaves out consolidated files that are not among `kept`.
void LeaveOutConsolidated(std::vector<std::string>& names, const std::set<std::string_view>& kept,
                          std::vector<std::string>& left_out) {
  const auto is_copy = [&](const std::string& name) {
    return IsConsolidated(name) && !kept.contains(name);
  };
  std::ranges::copy_if(names, std::back_inserter(left_out), is_copy);
  std::erase_if(names, is_copy);
  std::ranges::sort(left_out);
}

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

// "model-00001-of-00002.safetensors", but not "…-00001-of-00001".
bool IsOneOfSeveral(std::string_view name) {
  const size_t of = name.rfind("-of-");
  if (of == std::string_view::npos) return false;
  const std::string_view count = name.substr(of + 4, name.size() - of - 4 - kShardSuffix.size());
  const size_t first = count.find_first_not_of('0');
  return !count.empty() && first != std::string_view::npos && count.substr(first) != "1" &&
         count.find_first_not_of("0123456789") == std::string_view::npos;
}

Status CheckNumberOfFiles(const fs::path& folder, const Listing& listing) {
  if (listing.shards.empty() && !listing.other_weights.empty()) {
    return RefuseFile(folder.string(), *std::ranges::min_element(listing.other_weights));
  }
  if (listing.shards.empty()) {
    return Malformed(folder.string(), "no .safetensors file in the folder")
        .Hint("prepack reads only checkpoints in the safetensors format");
  }
  if (listing.indexes.size() > 1) {
    return Malformed(folder.string(), "more than one index in the folder")
        .Found(fmt::format("{}", fmt::join(listing.indexes, ", ")))
        .Hint("Keep one and move the others out of the folder");
  }
  if (listing.indexes.empty() && listing.shards.size() == 1 && IsOneOfSeveral(listing.shards[0])) {
    return Malformed(folder.string(), "only one of several shards, and no index")
        .Found(listing.shards[0])
        .Expected(fmt::format("all shards, and an index *{}", kIndexSuffix))
        .Hint("Is the download complete? To read a single file, give its path");
  }
  if (listing.indexes.empty() && listing.shards.size() > 1) {
    return Malformed(folder.string(), "several .safetensors files, but no index")
        .Found(fmt::format("{} and {}", listing.shards[0], listing.shards[1]))
        .Expected(fmt::format("one file, or an index *{}", kIndexSuffix))
        .Hint("Is the download complete? To read a single file, give its path");
  }
  return {};
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
  std::vector<StoredTensor> tensors;
};

Result<OpenedFile> OpenShard(const fs::path& path, size_t number) {
  PREPACK_TRY_ASSIGN(File file, File::OpenWeights(path));
  PREPACK_TRY_ASSIGN(SafetensorsHeader header, ReadSafetensorsHeader(file));
  OpenedFile opened{.file = {.name = path.filename().string(),
                             .file = std::move(file),
                             .tensors = header.tensors.size(),
                             .data_start = header.data_start},
                    .tensors = {}};
  opened.tensors.reserve(header.tensors.size());
  for (TensorInfo& info : header.tensors) {
    opened.tensors.push_back({.name = std::move(info.name),
                              .dtype = info.dtype,
                              .shape = std::move(info.shape),
                              .file = number,
                              .offset = header.data_start + info.begin,
                              .bytes = info.bytes()});
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
  // A name that is not there is seldom looked at.
  const auto wanted = std::pair(TagOf(hash), name);
  const auto found = std::ranges::lower_bound(bucket, wanted, {}, [&](const Bucketed& entry) {
    return std::pair(entry.tag, std::string_view(tensors_[entry.tensor].name));
  });
  if (found == bucket.end() || tensors_[found->tensor].name != name) return nullptr;
  return &tensors_[found->tensor];
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

Status Checkpoint::ReadRuns(const StoredTensor& tensor, const ByteRuns& runs,
                            std::span<std::byte> out) const {
  if (runs.runs == 0) return {};
  const std::optional<uint64_t> skipped = CheckedMul(runs.runs - 1, runs.stride);
  const std::optional<uint64_t> last = skipped ? CheckedAdd(runs.offset, *skipped) : std::nullopt;
  const bool inside = last && *last <= tensor.bytes && runs.run_bytes <= tensor.bytes - *last;
  const std::optional<uint64_t> wanted = CheckedMul(runs.runs, runs.run_bytes);
  if (!inside || out.size() != wanted) {
    return Usage(Where(tensor), "read outside the tensor")
        .Found(fmt::format("{} runs of {} bytes from {}", runs.runs, runs.run_bytes, runs.offset))
        .Expected(fmt::format("at most {} bytes", tensor.bytes));
  }
  ByteRuns in_file = runs;
  in_file.offset += tensor.offset;
  return files_[tensor.file].file.ReadRunsAt(in_file, out);
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
