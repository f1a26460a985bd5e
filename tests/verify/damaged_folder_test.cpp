// The header of a shard and the index of a packed folder are damaged, each bit and each length; as
// rot does it, and as somebody does it who puts the hashes right again.

#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "prepack/container/safetensors.h"
#include "prepack/io/file.h"
#include "prepack/io/output_folder.h"
#include "prepack/packed/output_hash.h"
#include "status_matchers.h"
#include "verify/folder_damage.h"
#include "verify/tiny_folder.h"

namespace prepack::testing {
namespace {

const std::string kIndexName = "model.safetensors.index.json";
const std::string kShardName = "model-00001-of-00002.safetensors";

// `text` with each bit of the bytes [from, to) flipped, one after the other.
void ForFlippedBits(const std::string& text, size_t from, size_t to,
                    const std::function<void(const std::string& damaged)>& work) {
  std::string damaged = text;
  for (size_t bit = 8 * from; bit < 8 * to; ++bit) {
    INFO("bit " << bit % 8 << " of byte " << bit / 8 << ", " << text.substr(bit / 8, 20));
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    work(damaged);
    damaged[bit / 8] = text[bit / 8];
  }
}

// Where the JSON of a shard's header ends; padding follows.
size_t HeaderEnd(const std::string& shard) {
  uint64_t length = 0;
  std::memcpy(&length, shard.data(), sizeof length);
  return shard.find_last_not_of(' ', sizeof length + length - 1) + 1;
}

struct Description {
  std::string name;
  std::string whole;
  size_t end = 0;  // of what it says
};

std::vector<Description> DescriptionsIn(const TinyFolder& folder) {
  std::vector<Description> descriptions;
  for (const std::string& name : {kShardName, kIndexName}) {
    const std::string whole = folder.Text(name);
    descriptions.push_back({name, whole, name == kShardName ? HeaderEnd(whole) : whole.size()});
  }
  return descriptions;
}

// Flipped bits of a manifest are in manifest_test.cpp: its hash finds them all.
TEST_CASE("headers and an index that rotted are never passed") {
  const TinyFolder folder;
  REQUIRE(Passes(folder));
  for (const auto& [name, whole, end] : DescriptionsIn(folder)) {
    INFO(name);
    ForFlippedBits(whole, 0, end, [&, name = name](const std::string& damaged) {
      folder.Write(name, damaged);
      REQUIRE_FALSE(Passes(folder));
      CheckEnd(folder.Inspect());
    });
    folder.Write(name, whole);
  }
  REQUIRE(Passes(folder));
}

TEST_CASE("descriptions of a packed folder that were cut are never passed") {
  const TinyFolder folder;
  for (const std::string& name : {kShardName, kIndexName, std::string(kManifestName)}) {
    INFO(name);
    const std::string whole = folder.Text(name);
    const size_t end = name == kShardName ? HeaderEnd(whole) : whole.size();
    for (size_t length = 0; length < end; length += name == kManifestName ? 7 : 1) {
      INFO(length);
      folder.Write(name, whole.substr(0, length));
      REQUIRE_FALSE(Passes(folder));
      ReadByOthers(folder);
      REQUIRE_FALSE(folder.Resume().ok());
    }
    folder.Write(name, whole);
  }
  REQUIRE(Passes(folder));
  CHECK(Value(folder.Resume()).was_done);
}

// Makes the manifest say what now lies there: of a shard whose header can be read, as convert makes
// it.
void HashAgain(const TinyFolder& folder, const std::string& manifest, const std::string& name) {
  std::string text = WithoutHash(manifest);
  const std::string before = Json::parse(manifest)["files"][name]["xxh3_128"];
  const File file = Value(File::OpenForRead(folder.path() / name));
  Progress progress;
  std::string now = Value(HashFile(file, progress)).xxh3_128;
  const Result<SafetensorsHeader> header = ReadSafetensorsHeader(file);
  if (header.ok()) now = HashesOfShard(file, *header).file.xxh3_128;
  text.replace(text.find(before), before.size(), now);
  folder.Write(std::string(kManifestName), Hashed(text));
}

TEST_CASE("headers and an index that lie are not passed, though the manifest has their hash") {
  const TinyFolder folder;
  const std::string manifest = folder.Text(std::string(kManifestName));
  std::set<std::string> passed;
  for (const auto& [name, whole, end] : DescriptionsIn(folder)) {
    ForFlippedBits(whole, 0, end, [&, name = name, whole = whole](const std::string& damaged) {
      folder.Write(name, damaged);
      HashAgain(folder, manifest, name);
      if (Passes(folder)) {
        const size_t start = name == kShardName ? sizeof(uint64_t) : 0;
        const size_t length = name == kShardName ? HeaderEnd(whole) - start : whole.size();
        passed.insert(FirstDifference(whole.substr(start, length), damaged.substr(start, length)));
      }
      CheckEnd(folder.Inspect());
    });
    folder.Write(name, whole);
  }
  folder.Write(std::string(kManifestName), manifest);
  REQUIRE(Passes(folder));
  // The sum of all sizes, for who wants to know it before: nothing is read by it.
  CHECK(passed == std::set<std::string>{"remove /metadata", "remove /metadata/total_size",
                                        "replace /metadata/total_size"});
}

}  // namespace
}  // namespace prepack::testing
