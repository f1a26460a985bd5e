// A tiny packed folder whose descriptions are damaged: the header of a shard, the index, the
// manifest, each bit and each length; as rot does it, and as somebody does it who puts the hashes
// right again. Whoever reads it ends with a result or an error of the documented kinds, and verify
// never says "passed" of what is not what was written. Fields of which it cannot know are listed
// below.

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "container/safetensors.h"
#include "convert/convert.h"
#include "convert/manifest_text.h"
#include "convert/output_hash.h"
#include "diff/diff.h"
#include "formats/tiny_model.h"
#include "inspect/inspect.h"
#include "inspect/opened_folder.h"
#include "io/file.h"
#include "io/output_folder.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/folder_damage.h"
#include "verify/verify.h"

namespace prepack {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;
using testing::Value;

const std::string kIndexName = "model.safetensors.index.json";
const std::string kShardName = "model-00001-of-00002.safetensors";

// A source and what was packed of it, which is damaged and mended again and again.
class TinyFolder {
 public:
  TinyFolder() {
    testing::TinyModel({"a"}).Write(source());
    REQUIRE(Value(Resume()).shards == 2);
  }

  fs::path source() const { return temp_ / "source"; }
  fs::path path() const { return temp_ / "out"; }
  std::string Text(const std::string& name) const {
    return Value(ReadTextFile(path() / name, 1 << 20));
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(path() / name, std::ios::binary | std::ios::trunc) << text;
  }

  Result<VerifyReport> Verify(std::vector<Level> skip) const {
    VerifyOptions options;
    options.folder = path();
    options.source = source();
    options.engine = EngineChoice::kReference;
    options.skip = std::move(skip);
    options.jobs = 1;
    Progress progress;
    return prepack::Verify(options, progress);
  }
  Status Inspect() const {
    if (Status status = prepack::Inspect(path()).status(); !status.ok()) return status;
    const Result<OpenedFolder> opened = OpenedFolder::Open(path());
    return opened.ok() ? FindPackedModule(*opened, "a").status() : opened.status();
  }
  Status Diff() const {
    Progress progress;
    return prepack::Diff({.a = path(), .b = source(), .module = {}, .jobs = 1}, progress).status();
  }
  Result<ConvertReport> Resume() const {
    ConvertOptions options;
    options.source = source();
    options.output = path();
    options.plan.target = "vllm-cpu";
    options.shard_bytes = 64;
    options.jobs = 1;
    options.flush = false;
    options.resume = true;
    Progress progress;
    return Convert(options, progress);
  }

 private:
  TempFolder temp_;
};

// Success, or a message of a kind that a damaged folder may have.
void CheckEnd(const Status& status) {
  if (status.ok()) return;
  static const std::set<ErrorKind> kKinds = {ErrorKind::kUsage, ErrorKind::kMalformed,
                                             ErrorKind::kUnsupported};
  INFO(status.ToString());
  REQUIRE(kKinds.contains(status.kind()));
  REQUIRE_FALSE(status.what().empty());
}

// Is every level that ran content?
bool Passes(const TinyFolder& folder, const std::vector<Level>& skip) {
  const Result<VerifyReport> report = folder.Verify(skip);
  CheckEnd(report.status());
  if (!report.ok()) return false;
  if (report->level(Level::kIntegrity).state == LevelState::kFailed) {
    REQUIRE_FALSE(report->level(Level::kIntegrity).problems.empty());
  }
  for (const Level level : {Level::kIntegrity, Level::kExactness, Level::kGemm}) {
    const bool skipped = std::ranges::count(skip, level) != 0;
    if (!skipped && report->level(level).state != LevelState::kPassed) return false;
  }
  return true;
}

// The first levels find most, in less time.
bool Passes(const TinyFolder& folder) {
  return Passes(folder, {Level::kGemm}) && Passes(folder, {});
}

void ReadByOthers(const TinyFolder& folder) {
  CheckEnd(folder.Inspect());
  CheckEnd(folder.Diff());
  CheckEnd(folder.Resume().status());
}

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

// "replace /a/b": the first value in which two documents differ.
std::string FirstDifference(const std::string& a, const std::string& b) {
  const Json patch = Json::diff(Json::parse(a), Json::parse(b));
  if (patch.empty()) return "nothing";
  return fmt::format("{} {}", patch[0]["op"].get<std::string>(),
                     patch[0]["path"].get<std::string>());
}

// The manifest with a hash that fits.
std::string Hashed(const std::string& text) {
  return fmt::format("{}{}{}\"\n}}\n", text, kManifestHashPrefix, Xxh3Hex(text));
}

std::string WithoutHash(const std::string& manifest) {
  return manifest.substr(0, manifest.rfind(kManifestHashPrefix));
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
  if (header.ok()) now = Value(HashShard(file, *header, progress)).file.xxh3_128;
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

// A folder cannot tell by what program, with which options, and from which place it was made: so
// these fields are believed, and nothing that is computed depends on them. Without `run`, --resume
// makes the folder again; without `source/path`, the source is named with --source.
const std::set<std::string> kBelieved = {"replace /prepack_version", "remove /run",
                                         "replace /run/options",     "replace /run/plan",
                                         "replace /run/prepack",     "replace /run/source",
                                         "remove /source/path",      "replace /source/path"};

TEST_CASE("manifests that lie are not passed, though their hash fits") {
  const TinyFolder folder;
  const std::string manifest = folder.Text(std::string(kManifestName));
  const std::string text = WithoutHash(manifest);
  std::set<std::string> passed;
  size_t refused = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << at % 7);
    INFO("byte " << at << ", " << damaged.substr(at < 10 ? 0 : at - 10, 20));
    folder.Write(std::string(kManifestName), Hashed(damaged));
    if (Passes(folder)) {
      passed.insert(FirstDifference(text + "}", damaged + "}"));
    } else {
      ++refused;
    }
    ReadByOthers(folder);
  }
  CHECK(passed == kBelieved);
  CHECK(refused > 1000);
}

}  // namespace
}  // namespace prepack
