#pragma once

// Names of the Hugging Face hub, "ORG/NAME" or "ORG/NAME@REVISION", for models that are in the
// local cache. It is laid out like this (mirrors huggingface_hub 2.4):
//
//     models--ORG--NAME/refs/main                        the text of a commit, 40 hexadecimal
//     digits models--ORG--NAME/snapshots/COMMIT/config.json     a link into blobs/
//     models--ORG--NAME/blobs/HASH, HASH.incomplete      files, and what is left of broken
//     downloads models--ORG--NAME/trees/COMMIT.json                the files that the commit has;
//     may be missing
//
// prepack looks there and nowhere else: it opens no connection.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "prepack/base/status.h"

namespace prepack {

struct HubName {
  std::string name;      // "Qwen/Qwen3-8B-AWQ", or "gpt2"
  std::string revision;  // branch, tag, or a commit or its beginning; empty: main

  friend bool operator==(const HubName&, const HubName&) = default;
};

// A model of the hub, exactly.
struct HubOrigin {
  std::string name;
  std::string commit;

  std::string Text() const { return name + "@" + commit; }
  friend bool operator==(const HubOrigin&, const HubOrigin&) = default;
};

// Nothing when the hub would not allow the name.
std::optional<HubName> ParseHubName(std::string_view text);
// 40 hexadecimal digits, in lower case.
bool IsHubCommit(std::string_view text);

// HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub. Empty when nothing says where.
std::filesystem::path HubCacheFolder();

// The snapshot in the cache. kSystem (as for a file that is not there) when the cache has not got
// it, kMalformed when its download is not complete; both say which command fetches it. kUsage for
// the beginning of several commits.
Result<std::filesystem::path> FindSnapshot(const std::filesystem::path& cache, const HubName& name);

// The model whose snapshot the folder is, by its place; nothing when it lies in no cache. An error
// when the folder cannot be looked at.
Result<std::optional<HubOrigin>> HubOriginOf(const std::filesystem::path& folder);

// What the user means by an argument that names a folder or file: the path itself if there is
// something; else, if it is the name of a model, its snapshot. What is neither is returned as it
// is, so that opening it says what is wrong.
Result<std::filesystem::path> PathOrSnapshot(const std::string& argument);

}  // namespace prepack
