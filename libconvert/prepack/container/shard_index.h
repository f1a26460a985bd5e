#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"

namespace prepack {

class Checkpoint;

// model.safetensors.index.json: which tensor lies in which shard. Indexes have few shards and many
// tensors, so the names of shards are stored once, and those of tensors stay in the text.
struct ShardIndex {
  // A tensor and the shard that the index says it lies in.
  struct Entry {
    std::string_view tensor;
    uint32_t shard = 0;   // number in `shards`
    uint32_t offset = 0;  // behind the name, in the file
  };

  std::vector<std::string> shards;  // in the order in which the index names them
  std::vector<Entry> entries;       // each tensor once
  // What the names point into.
  std::unique_ptr<const std::string> text;
  std::deque<std::string> decoded;  // names that are written with escapes
};

// The file name of a shard ends so.
inline constexpr std::string_view kShardSuffix = ".safetensors";

// kMalformed for what is no index. It may only name files beside it, and no tensor twice.
Result<ShardIndex> ReadShardIndex(const std::filesystem::path& path);

// kMalformed unless its shards are those of the folder, which are in order.
Status CheckShards(const std::filesystem::path& index_path, const ShardIndex& index,
                   const std::vector<std::string>& present);

// kMalformed unless index and headers agree, in both directions. May put the entries in another
// order.
Status CheckIndex(const std::filesystem::path& index_path, ShardIndex& index,
                  const Checkpoint& checkpoint);

}  // namespace prepack
