#include "prepack/container/folder_listing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <span>
#include <utility>

#include "prepack/container/shard_index.h"
#include "prepack/io/file.h"
#include "prepack/io/output_folder.h"
#include "prepack/io/posix.h"

namespace prepack {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::string_view kAnyIndexSuffix = ".index.json";
// The prefix of the files in Mistral's own copy of a model.
constexpr std::string_view kConsolidated = "consolidated";
// The same weights in other formats. They are not side files: the packed folder must not contain
// the model twice.
constexpr std::array<std::string_view, 7> kOtherWeights = {".bin",  ".pt", ".pth",    ".gguf",
                                                           ".onnx", ".h5", ".msgpack"};

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

Status CheckSourceLinks(const fs::path& source, std::span<const fs::path> links) {
  if (links.empty()) return {};
  PREPACK_TRY_ASSIGN(const fs::path folder, ResolveLinks(source));
  const AllowedPlaces allowed = PlacesOf(folder);
  for (const fs::path& link : links) {
    PREPACK_TRY(CheckLink(link, allowed));
  }
  return {};
}

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

bool IsConsolidated(std::string_view name) {
  return name.starts_with(kConsolidated);
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

}  // namespace

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

bool HasOwnShards(const Listing& listing) {
  return listing.has_config && !std::ranges::all_of(listing.shards, IsConsolidated);
}

void LeaveOutConsolidated(std::vector<std::string>& names, const std::set<std::string_view>& kept,
                          std::vector<std::string>& left_out) {
  const auto is_copy = [&](const std::string& name) {
    return IsConsolidated(name) && !kept.contains(name);
  };
  std::ranges::copy_if(names, std::back_inserter(left_out), is_copy);
  std::erase_if(names, is_copy);
  std::ranges::sort(left_out);
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

std::string_view FormatOfFile(std::string_view name) {
  if (name.ends_with(".gguf")) return "GGUF";
  if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth")) return "PyTorch";
  if (name.ends_with(".onnx")) return "ONNX";
  if (name.ends_with(".h5") || name.ends_with(".msgpack")) return "TensorFlow or Flax";
  return "";
}

Status RefuseFile(std::string_view where, std::string_view file) {
  const std::string_view format = FormatOfFile(file);
  return Unsupported(where, fmt::format("{} weights are not supported here", format))
      .Found(Printable(file))
      .Expected("*.safetensors")
      .Hint(format == "GGUF" ? "Give inspect, check, diff, verify or convert the path of the file"
                             : "Convert the weights to safetensors with the tool that made them")
      .Id("container-unsupported");
}

}  // namespace prepack
