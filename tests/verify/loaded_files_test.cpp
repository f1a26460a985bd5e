// Folders whose files and hashes agree with the manifest, but which loaders read otherwise: tensors
// in files that none of them opens, and data that does not lie where the format promises.

#include "prepack/verify/integrity.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/tiny_model.h"
#include "prepack/base/hash.h"
#include "prepack/container/safetensors.h"
#include "prepack/convert/convert.h"
#include "prepack/io/file.h"
#include "prepack/packed/output_hash.h"
#include "prepack/verify/verify.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/folder_damage.h"
#include "verify/in_parts.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";

std::vector<std::string> NotLoaded(const std::vector<std::string>& files) {
  Manifest manifest;
  for (const std::string& file : files) manifest.files[file];
  return FilesNotLoaded(manifest);
}

TEST_CASE("loaders read one file, or the shards of an index") {
  using Names = std::vector<std::string>;
  const std::string first = "model-00001-of-00002.safetensors";
  const std::string second = "model-00002-of-00002.safetensors";
  CHECK(NotLoaded({"config.json", "model.safetensors"}).empty());
  CHECK(NotLoaded({first, second, kIndex}).empty());
  CHECK(NotLoaded({"config.json"}).empty());
  CHECK(NotLoaded({"model.safetensors", "consolidated.safetensors"}) ==
        Names{"consolidated.safetensors"});
  CHECK(NotLoaded({"model.safetensors", ".hidden.safetensors"}) == Names{".hidden.safetensors"});
  CHECK(NotLoaded({"model.safetensors", "MODEL.SafeTensors"}) == Names{"MODEL.SafeTensors"});
  CHECK(NotLoaded({"weights.safetensors"}) == Names{"weights.safetensors"});
  // transformers then reads this one alone.
  CHECK(NotLoaded({first, second, kIndex, "model.safetensors"}) == Names{"model.safetensors"});
  CHECK(NotLoaded({first, second}) == Names{first, second});
  CHECK(NotLoaded({first, kIndex}) == Names{first});
  CHECK(NotLoaded({second, kIndex}) == Names{second});
  CHECK(NotLoaded({first, second, "model-00001-of-00001.safetensors", kIndex}) ==
        Names{"model-00001-of-00001.safetensors"});
}

struct Folder {
  explicit Folder(uint64_t shard_bytes) {
    TinyModel({"a", "b"}).Write(temp / "source");
    ConvertOptions options;
    options.source = temp / "source";
    options.output = path();
    options.plan.target = "vllm-cpu";
    options.shard_bytes = shard_bytes;
    options.flush = false;
    Progress progress;
    RequireOk(Convert(options, progress).status());
    const VerifyReport report = Verify();
    REQUIRE(report.level(Level::kIntegrity).state == LevelState::kPassed);
    REQUIRE(report.level(Level::kExactness).state == LevelState::kPassed);
  }

  fs::path path() const { return temp / "out"; }
  VerifyReport Verify() const {
    VerifyOptions options;
    options.folder = path();
    options.source = temp / "source";
    options.skip = {Level::kGemm};
    options.jobs = 1;
    Progress progress;
    return Value(VerifyAlsoInParts(options, progress));
  }
  // The problem of integrity with that place, or "".
  std::string ProblemOf(const std::string& where) const {
    const VerifyReport report = Verify();
    const LevelResult& level = report.level(Level::kIntegrity);
    const auto problem = std::ranges::find(level.problems, where, &Problem::where);
    return problem == level.problems.end() ? "" : problem->message;
  }

  TempFolder temp;
};

std::vector<TensorRecord*> AllRecords(Manifest& manifest) {
  std::vector<TensorRecord*> records;
  for (auto& [name, module] : manifest.modules) {
    for (auto& [part, tensor] : module.parts) records.push_back(&tensor);
  }
  for (TensorRecord& tensor : manifest.tensors) records.push_back(&tensor);
  return records;
}

// Gives a shard another name everywhere, and makes an index without its tensors, if there is one.
void RenameShard(const fs::path& folder, const std::string& from, const std::string& to) {
  fs::rename(folder / from, folder / to);
  EditManifest(folder, [&](Manifest& manifest) {
    auto file = manifest.files.extract(from);
    file.key() = to;
    manifest.files.insert(std::move(file));
    Json index = {{"metadata", Json::object()}, {"weight_map", Json::object()}};
    for (TensorRecord* tensor : AllRecords(manifest)) {
      if (tensor->file == from) {
        tensor->file = to;
      } else {
        index["weight_map"][tensor->tensor] = tensor->file;
      }
    }
    if (!manifest.files.contains(kIndex)) return;
    const std::string text = index.dump(2);
    std::ofstream(folder / kIndex) << text;
    manifest.files[kIndex] = {.bytes = text.size(), .xxh3_128 = Xxh3Hex(text)};
  });
}

TEST_CASE("tensors in shards that no loader reads fail integrity, though all hashes fit") {
  const Folder folder(64);
  const std::string shard = PartOf(folder.path(), "a", "weight").file;
  for (const std::string name :
       {".hidden.safetensors", "consolidated.safetensors", "model.safetensors",
        "model-99999-of-99999.safetensors", "extra.safetensors"}) {
    CAPTURE(name);
    RenameShard(folder.path(), shard, name);
    CHECK(folder.ProblemOf(name) == "loaders do not take it for weights of this model");
    CHECK(folder.ProblemOf("module a: part weight") ==
          "it lies in " + name + ": loaders do not take it for weights of this model");
    RenameShard(folder.path(), name, shard);
  }
}

TEST_CASE("a single file under another name is one that loaders do not find") {
  const Folder folder(1 << 20);
  RenameShard(folder.path(), "model.safetensors", "consolidated.safetensors");
  CHECK(folder.ProblemOf("consolidated.safetensors") ==
        "loaders do not take it for weights of this model");
}

// Moves all data of the only file behind by some bytes of padding, and makes all that says so fit.
void ShiftData(const fs::path& folder, size_t bytes) {
  const fs::path path = folder / "model.safetensors";
  std::string text = Value(ReadTextFile(path, 1 << 20));
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) {
    length |= uint64_t{static_cast<unsigned char>(text[i])} << (8 * i);
  }
  text.insert(8 + length, bytes, ' ');
  length += bytes;
  for (size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(length >> (8 * i) & 0xFF);
  std::ofstream(path, std::ios::binary) << text;
  EditManifest(folder, [&](Manifest& manifest) {
    for (TensorRecord* tensor : AllRecords(manifest)) tensor->offset += bytes;
    const File file = Value(File::OpenForRead(path));
    manifest.files["model.safetensors"] =
        HashesOfShard(file, Value(ReadSafetensorsHeader(file))).file;
  });
}

TEST_CASE("data that does not begin where the format promises fails integrity") {
  const Folder folder(1 << 20);
  SECTION("by a byte") {
    ShiftData(folder.path(), 1);
    CHECK(folder.ProblemOf("module a: part weight").find("which is not a multiple of 64") !=
          std::string::npos);
    CHECK(folder.ProblemOf("tensor norm").find("which is not a multiple of 2") !=
          std::string::npos);
  }
  SECTION("by what is enough for tensors") {
    ShiftData(folder.path(), 64);
    CHECK(folder.ProblemOf("module a: part weight").empty());
  }
  CHECK(folder.ProblemOf("model.safetensors").find("which is not a multiple of 4096") !=
        std::string::npos);
}

}  // namespace
}  // namespace prepack::testing
