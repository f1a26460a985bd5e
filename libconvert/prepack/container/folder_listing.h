#pragma once

// The files in the folder of a checkpoint: which of them are weights, and which links may be
// followed.

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"

namespace prepack {

inline constexpr std::string_view kConfigName = "config.json";

// The plain names in a folder, in ascending order and by role. Hidden files are left out.
struct Listing {
  std::vector<std::string> shards;
  std::vector<std::string> indexes;
  std::vector<std::string> side_files;
  std::vector<std::string> other_weights;
  std::vector<std::string> left_out;  // see Checkpoint::left_out
  bool has_config = false;
};

// kMalformed for an entry that is no regular file, and for a link that leads out of the folder.
Result<Listing> ListFolder(const std::filesystem::path& folder);

// Whether one of the shards is Hugging Face's, which makes consolidated ones another copy of the
// model.
bool HasOwnShards(const Listing& listing);
// Leaves out consolidated files that are not among `kept`.
void LeaveOutConsolidated(std::vector<std::string>& names, const std::set<std::string_view>& kept,
                          std::vector<std::string>& left_out);

// Is there one file of weights, or are there several with one index?
Status CheckNumberOfFiles(const std::filesystem::path& folder, const Listing& listing);

// "GGUF", "PyTorch" …: the format of a file of weights, by the end of its name; empty if unknown.
std::string_view FormatOfFile(std::string_view name);
// The error for weights in such a format.
Status RefuseFile(std::string_view where, std::string_view file);

}  // namespace prepack
