// Finds snapshots in the cache of the Hugging Face hub, and tells complete ones from what an
// interrupted download has left.

#include "prepack/container/hub_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/container/json_fields.h"
#include "prepack/io/file.h"

namespace prepack {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kModels = "models--";
constexpr size_t kCommitDigits = 40;
constexpr size_t kFewestDigits = 4;        // of the beginning of a commit
constexpr size_t kMaxNameBytes = 96;       // of each of the two
constexpr size_t kMaxRevisionBytes = 255;  // of a file name
constexpr uint64_t kMaxRefBytes = 1024;
constexpr uint64_t kMaxListBytes = uint64_t{128} << 20;  // as of an index
constexpr std::string_view kShard = ".safetensors";
constexpr std::string_view kIndex = ".safetensors.index.json";

bool IsWordCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Of ASCII letters, digits, '_', '-' and '.'; neither of the last two at an end.
bool IsNamePart(std::string_view part) {
  return !part.empty() && part.size() <= kMaxNameBytes && IsWordCharacter(part.front()) &&
         IsWordCharacter(part.back()) && std::ranges::all_of(part, [](char c) {
           return IsWordCharacter(c) || c == '-' || c == '.';
         });
}

bool IsModelName(std::string_view name) {
  const size_t slash = name.find('/');
  const bool has_org = slash != std::string_view::npos;
  if (has_org && !IsNamePart(name.substr(0, slash))) return false;
  if (!IsNamePart(has_org ? name.substr(slash + 1) : name)) return false;
  return name.find("--") == std::string_view::npos && name.find("..") == std::string_view::npos &&
         !name.ends_with(".git");
}

// A path below refs/ that stays there.
bool IsRevision(std::string_view revision) {
  if (revision.empty() || revision.size() > kMaxRevisionBytes) return false;
  if (Printable(revision, revision.size()) != revision) return false;
  const fs::path path{revision};
  return !path.is_absolute() && std::ranges::none_of(path, [](const fs::path& part) {
    return part.empty() || part == "." || part == "..";
  });
}

bool IsHex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; });
}

std::string FolderName(std::string_view name) {
  std::string folder(kModels);
  for (const char c : name) folder += c == '/' ? "--" : std::string(1, c);
  return folder;
}

std::string AsAsked(const HubName& name) {
  return name.revision.empty() ? name.name : name.name + "@" + name.revision;
}

// The command that fetches it.
std::string Fetch(const HubName& name) {
  return fmt::format("`hf download {}{}{}` fetches it", name.name,
                     name.revision.empty() ? "" : " --revision ", name.revision);
}

Status NotInCache(const HubName& name, const fs::path& cache, std::string_view what) {
  return SystemError(AsAsked(name), fmt::format("no such folder, and {}", what), ENOENT)
      .Expected(fmt::format("it in {}", cache.string()))
      .Hint(Fetch(name));
}

Status Incomplete(const HubName& name, std::string_view found) {
  return Malformed(AsAsked(name), "its download is not complete").Found(found).Hint(Fetch(name));
}

bool IsFolder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool IsThere(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Of a branch or tag; empty when the cache knows none of this name.
Result<std::string> CommitOfRef(const fs::path& model, const HubName& name,
                                const std::string& revision) {
  const fs::path ref = model / "refs" / revision;
  std::error_code error;
  if (!fs::is_regular_file(ref, error)) return std::string();
  PREPACK_TRY_ASSIGN(std::string text, ReadTextFile(ref, kMaxRefBytes));
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0)
    text.pop_back();
  if (!IsHubCommit(text)) {
    return Malformed(ref.string(), "not the commit of a revision")
        .Found(Printable(text))
        .Expected("40 hexadecimal digits")
        .Hint(Fetch(name));
  }
  return text;
}

Result<std::string> CommitOfBeginning(const fs::path& snapshots, const HubName& name) {
  std::string beginning = name.revision;
  std::ranges::transform(beginning, beginning.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (!IsHex(beginning) || beginning.size() < kFewestDigits || !IsFolder(snapshots))
    return std::string();
  PREPACK_TRY_ASSIGN(std::vector<std::string> commits, NamesIn(snapshots));
  std::erase_if(commits, [&](const std::string& commit) {
    return !IsHubCommit(commit) || !commit.starts_with(beginning);
  });
  if (commits.size() > 1) {
    return Usage(AsAsked(name), "the cache has several commits that begin like this")
        .Found(fmt::format("{}", fmt::join(commits, ", ")))
        .Hint("Give more digits");
  }
  return commits.empty() ? std::string() : commits.front();
}

Result<std::string> CommitOf(const fs::path& model, const HubName& name) {
  const std::string revision = name.revision.empty() ? "main" : name.revision;
  if (IsHubCommit(revision)) return revision;
  PREPACK_TRY_ASSIGN(std::string commit, CommitOfRef(model, name, revision));
  if (!commit.empty()) return commit;
  return CommitOfBeginning(model / "snapshots", name);
}

// "a, b and 7 more".
std::string FewOf(const std::vector<std::string>& names) {
  constexpr size_t kMost = 3;
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMost; ++i) {
    text += (i == 0 ? "" : ", ") + Printable(names[i]);
  }
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

// Does prepack read it? Mistral's second copies of the weights may be left out of a download.
bool IsNeeded(std::string_view name) {
  if (name.find('/') != std::string_view::npos || name.starts_with("consolidated")) return false;
  return name == "config.json" || name.ends_with(kShard) || name.ends_with(kIndex);
}

// What the snapshot must hold; nothing when the cache has no list of the files, or one that cannot
// be read.
std::optional<std::vector<std::string>> ListedFiles(const fs::path& model,
                                                    std::string_view commit) {
  const fs::path path = model / "trees" / fmt::format("{}.json", commit);
  if (!IsThere(path)) return std::nullopt;
  const Result<std::string> text = ReadTextFile(path, kMaxListBytes);
  if (!text.ok()) return std::nullopt;
  const Result<Json> json = ParseJsonStrict(*text, path.string(), {});
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const auto version = json->find("format_version");
  const auto files = json->find("files");
  if (version == json->end() || *version != 1 || files == json->end() || !files->is_object()) {
    return std::nullopt;
  }
  std::vector<std::string> names;
  for (const auto& [name, file] : files->items()) {
    if (IsNeeded(name)) names.push_back(name);
  }
  return names;
}

// Shards that an index in the snapshot names and that are not there. An index that cannot be read
// is an error of whoever opens the checkpoint.
std::vector<std::string> MissingShards(const fs::path& snapshot,
                                       const std::vector<std::string>& names) {
  std::set<std::string> missing;
  for (const std::string& name : names) {
    if (!name.ends_with(kIndex) || name.starts_with("consolidated")) continue;
    const Result<std::string> text = ReadTextFile(snapshot / name, kMaxListBytes);
    if (!text.ok()) continue;
    const Result<Json> json = ParseJsonStrict(*text, name, {});
    if (!json.ok() || !json->is_object()) continue;
    const auto map = json->find("weight_map");
    if (map == json->end() || !map->is_object()) continue;
    for (const auto& [tensor, shard] : map->items()) {
      if (!shard.is_string()) continue;
      const auto& file = shard.get_ref<const std::string&>();
      if (IsNeeded(file) && !std::ranges::binary_search(names, file)) missing.insert(file);
    }
  }
  return {missing.begin(), missing.end()};
}

Status CheckComplete(const fs::path& model, const fs::path& snapshot, std::string_view commit,
                     const HubName& name) {
  PREPACK_TRY_ASSIGN(const std::vector<std::string> names, NamesIn(snapshot));
  std::vector<std::string> missing;
  for (const std::string& file : names) {
    if (!IsThere(snapshot / file)) missing.push_back(file);  // a link to a blob that is gone
  }
  if (!missing.empty()) return Incomplete(name, "links without a file: " + FewOf(missing));
  const auto has = [&](const std::string& file) { return std::ranges::binary_search(names, file); };
  const auto listed = ListedFiles(model, commit);
  if (listed) {
    std::ranges::copy_if(*listed, std::back_inserter(missing),
                         [&](const auto& file) { return !has(file); });
  } else {
    missing = MissingShards(snapshot, names);
    if (!has("config.json")) missing.emplace_back("config.json");
  }
  if (!missing.empty()) return Incomplete(name, "no " + FewOf(missing));
  // With a list, what is left of another download says nothing about this one.
  if (listed || !IsFolder(model / "blobs")) return {};
  PREPACK_TRY_ASSIGN(const std::vector<std::string> blobs, NamesIn(model / "blobs"));
  const auto part = std::ranges::find_if(
      blobs, [](const std::string& blob) { return blob.ends_with(".incomplete"); });
  if (part == blobs.end()) return {};
  return Incomplete(name, (model / "blobs" / *part).string())
      .Hint(fmt::format("{}. If the file is left from another download, remove it", Fetch(name)));
}

// Of an environment variable; empty when it is not set.
fs::path PathInEnvironment(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return {};
  const std::string_view text(value);
  if (text != "~" && !text.starts_with("~/")) return text;
  const char* home = std::getenv("HOME");
  return home == nullptr ? fs::path()
                         : fs::path(home) / text.substr(std::min<size_t>(2, text.size()));
}

}  // namespace

bool IsHubCommit(std::string_view text) {
  return text.size() == kCommitDigits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::optional<HubName> ParseHubName(std::string_view text) {
  const size_t at = std::min(text.find('@'), text.size());
  HubName name{.name = std::string(text.substr(0, at)), .revision = {}};
  if (!IsModelName(name.name)) return std::nullopt;
  if (at == text.size()) return name;
  name.revision = std::string(text.substr(at + 1));
  if (!IsRevision(name.revision)) return std::nullopt;
  return name;
}

fs::path HubCacheFolder() {
  if (fs::path cache = PathInEnvironment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const fs::path home = PathInEnvironment("HF_HOME"); !home.empty()) return home / "hub";
  fs::path caches = PathInEnvironment("XDG_CACHE_HOME");
  if (caches.empty()) {
    const fs::path home = PathInEnvironment("HOME");
    if (home.empty()) return {};
    caches = home / ".cache";
  }
  return caches / "huggingface" / "hub";
}

Result<fs::path> FindSnapshot(const fs::path& cache, const HubName& name) {
  const fs::path model = cache / FolderName(name.name);
  if (!IsFolder(model))
    return NotInCache(name, cache, "the cache of the hub has no model of this name");
  PREPACK_TRY_ASSIGN(const std::string commit, CommitOf(model, name));
  const fs::path snapshot = model / "snapshots" / commit;
  if (commit.empty() || !IsFolder(snapshot)) {
    return NotInCache(name, cache,
                      name.revision.empty() ? "the cache of the hub does not have revision main"
                                            : "the cache of the hub does not have this revision");
  }
  PREPACK_TRY(CheckComplete(model, snapshot, commit, name));
  return snapshot;
}

Result<std::optional<HubOrigin>> HubOriginOf(const fs::path& folder) {
  PREPACK_TRY_ASSIGN(const fs::path place, ResolveLinks(folder));
  const fs::path model = place.parent_path().parent_path();
  HubOrigin origin{.name = model.filename().string(), .commit = place.filename().string()};
  if (place.parent_path().filename() != "snapshots" || !origin.name.starts_with(kModels) ||
      !IsHubCommit(origin.commit)) {
    return std::optional<HubOrigin>();
  }
  origin.name.erase(0, kModels.size());
  if (const size_t dashes = origin.name.find("--"); dashes != std::string::npos) {
    origin.name.replace(dashes, 2, "/");
  }
  return IsModelName(origin.name) ? std::optional(std::move(origin)) : std::nullopt;
}

Result<fs::path> PathOrSnapshot(const std::string& argument) {
  const fs::path path(argument);
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error))) return path;
  const std::optional<HubName> name = ParseHubName(argument);
  const fs::path cache = HubCacheFolder();
  if (!name || cache.empty()) return path;
  if (!IsFolder(cache / FolderName(name->name))) {
    // A plain word, and a path into a folder that exists, are more likely to be a mistyped path.
    if (name->revision.empty() && (!path.has_parent_path() || IsFolder(path.parent_path())))
      return path;
  }
  return FindSnapshot(cache, *name);
}

}  // namespace prepack
