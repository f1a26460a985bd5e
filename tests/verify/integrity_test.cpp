// What level 1 says of damaged folders, and of which modules.

#include "prepack/verify/integrity.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "prepack/base/hash.h"
#include "prepack/convert/convert.h"
#include "prepack/io/file.h"
#include "prepack/packed/output_hash.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/checked_level.h"
#include "verify/folder_damage.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

// Three shards.
void ConvertTo(const std::filesystem::path& output) {
  ConvertOptions options;
  options.source = Fixture("checkpoints/ct-w4a16-g32-asym");
  options.output = output;
  options.plan.target = "vllm-cpu";
  options.shard_bytes = 600'000;
  Progress progress;
  REQUIRE(Value(Convert(options, progress)).shards == 3);
}

CheckedLevel CheckIntact(const std::filesystem::path& path, const ModuleSample* sample = nullptr) {
  const PackedFolder folder = Value(PackedFolder::Open(path));
  CheckedLevel checked{.which = Level::kIntegrity};
  for (const auto& [name, record] : folder.manifest().modules) checked.figures[name];
  Progress progress;
  IntegrityCheck check(folder, sample, progress);
  RunOnTwoThreads(folder, sample, {.integrity = &check}, progress);
  checked.level = Value(check.Finish(2, checked.figures));
  return checked;
}

std::set<std::string> ModulesOf(const std::filesystem::path& folder, const std::string& file) {
  std::set<std::string> modules;
  for (const auto& [name, record] : Value(ReadManifest(folder)).modules) {
    for (const auto& [part, tensor] : record.parts) {
      if (tensor.file == file) modules.insert(name);
    }
  }
  return modules;
}

// One problem of the file, and one of each module that lies in it.
void CheckWholeFile(const CheckedLevel& checked, const std::string& file,
                    const std::set<std::string>& modules, const std::string& text) {
  CHECK(checked.level.state == LevelState::kFailed);
  CHECK(checked.failed() == modules);
  REQUIRE(checked.level.problems.size() == modules.size() + 1);
  CHECK(checked.level.problems[0].where == file);
  CHECK(checked.level.problems[0].module.empty());
  CHECK(checked.level.problems[0].message == text);
  std::set<std::string> named;
  for (size_t i = 1; i < checked.level.problems.size(); ++i) {
    const Problem& problem = checked.level.problems[i];
    CHECK(problem.where == "module " + problem.module);
    CHECK(problem.message == fmt::format("parts of it are in {}: {}", file, text));
    named.insert(problem.module);
  }
  CHECK(named == modules);
}

TEST_CASE("a sound folder passes in all of its modules") {
  TempFolder temp;
  ConvertTo(temp / "out");
  const CheckedLevel checked = CheckIntact(temp / "out");
  CHECK(checked.level.state == LevelState::kPassed);
  CHECK(checked.level.problems.empty());
  CHECK(checked.figures.size() == 7);
  for (const auto& [name, figure] : checked.figures) {
    CHECK(figure.looked_at);
    CHECK(figure.state(Level::kIntegrity) == LevelState::kPassed);
  }
}

TEST_CASE("damage is told of the module and the part") {
  TempFolder temp;
  ConvertTo(temp / "out");
  FlipBits(temp / "out", PartOf(temp / "out", kDownProj, "weight"), 7, 1);
  const CheckedLevel checked = CheckIntact(temp / "out");
  CHECK(checked.failed() == std::set{kDownProj});
  REQUIRE(checked.level.problems.size() == 1);
  CHECK(checked.level.problems[0].module == kDownProj);
  CHECK(checked.level.problems[0].where == "module " + kDownProj + ": part weight");
  CHECK(checked.level.problems[0].message.find("are not what was written (found xxh3 ") !=
        std::string::npos);
}

TEST_CASE("damage of a tensor that passed through is of no module") {
  TempFolder temp;
  ConvertTo(temp / "out");
  const Manifest manifest = Value(ReadManifest(temp / "out"));
  FlipBits(temp / "out", manifest.tensors.front(), 0, 0x80);
  const CheckedLevel checked = CheckIntact(temp / "out");
  CHECK(checked.failed().empty());
  REQUIRE(checked.level.problems.size() == 1);
  CHECK(checked.level.problems[0].module.empty());
  CHECK(checked.level.problems[0].where == "tensor " + manifest.tensors.front().tensor);
}

TEST_CASE("a shard that is missing, cut, grown or has another header is told of each module") {
  TempFolder temp;
  ConvertTo(temp / "out");
  const std::string shard = PartOf(temp / "out", kDownProj, "weight").file;
  const std::filesystem::path path = temp / "out" / shard;
  const std::set<std::string> modules = ModulesOf(temp / "out", shard);
  const uint64_t size = std::filesystem::file_size(path);
  CHECK(modules.size() >= 2);
  CHECK(modules.size() < 7);
  const std::string sizes = std::to_string(size + 5) + " bytes, expected " + std::to_string(size);
  std::filesystem::copy(path, temp / "sound");
  const auto restore = std::filesystem::copy_options::overwrite_existing;

  std::filesystem::resize_file(path, size + 5);
  CheckWholeFile(CheckIntact(temp / "out"), shard, modules, "wrong size (found " + sizes + ")");

  std::filesystem::copy_file(temp / "sound", path, restore);
  TensorRecord header = PartOf(temp / "out", kDownProj, "weight");
  header.offset = 0;
  FlipBits(temp / "out", header, 40, 1);
  CheckWholeFile(CheckIntact(temp / "out"), shard, modules, "its header is not what was written");

  std::filesystem::remove(path);
  CheckWholeFile(CheckIntact(temp / "out"), shard, modules, "the file is missing");

  std::filesystem::copy_file(temp / "sound", path);
  CHECK(CheckIntact(temp / "out").level.state == LevelState::kPassed);
}

TEST_CASE("of a shard that was cut the lost parts are told") {
  TempFolder temp;
  ConvertTo(temp / "out");
  const TensorRecord part = PartOf(temp / "out", kDownProj, "weight");
  const auto lost = [&](const TensorRecord& tensor) {
    return tensor.file == part.file && tensor.offset + tensor.bytes() > part.offset + 100;
  };
  std::set<std::string> modules;
  size_t tensors = 0;
  const Manifest manifest = Value(ReadManifest(temp / "out"));
  for (const auto& [name, record] : manifest.modules) {
    for (const auto& [unused, tensor] : record.parts) {
      if (lost(tensor)) modules.insert(name);
      tensors += lost(tensor) ? 1U : 0U;
    }
  }
  tensors += static_cast<size_t>(std::ranges::count_if(manifest.tensors, lost));
  std::filesystem::resize_file(temp / "out" / part.file, part.offset + 100);
  const CheckedLevel checked = CheckIntact(temp / "out");
  CHECK(checked.failed() == modules);
  REQUIRE(checked.level.problems.size() == tensors + 1);
  CHECK(checked.level.problems[0].where == part.file);
  CHECK(checked.level.problems[0].message.starts_with("wrong size (found "));
  CHECK(checked.level.problems[1].message.starts_with("cannot be read: "));
}

TEST_CASE("a layout that is made otherwise today fails with its modules") {
  TempFolder temp;
  ConvertTo(temp / "out");
  EditManifest(temp / "out", [](Manifest& manifest) {
    manifest.layouts.at("vllm-cpu/wna16").fingerprint = std::string(32, '0');
  });
  const CheckedLevel checked = CheckIntact(temp / "out");
  CHECK(checked.failed().size() == 7);
  REQUIRE(checked.level.problems.size() == 8);
  CHECK(checked.level.problems[0].where == "layout vllm-cpu/wna16");
  CHECK(checked.level.problems[1].message ==
        "its layout vllm-cpu/wna16 differs from what this version of prepack makes");
}

TEST_CASE("a layout that this version does not know fails with its modules") {
  TempFolder temp;
  ConvertTo(temp / "out");
  EditManifest(temp / "out", [](Manifest& manifest) {
    manifest.layouts["vllm-cpu/next"] = manifest.layouts.at("vllm-cpu/wna16");
    for (auto& [name, module] : manifest.modules) module.layout = "vllm-cpu/next";
  });
  const CheckedLevel checked = CheckIntact(temp / "out");
  CHECK(checked.failed().size() == 7);
  REQUIRE(checked.level.problems.size() == 8);
  CHECK(checked.level.problems[0].where == "layout vllm-cpu/next");
  CHECK(checked.level.problems[0].message == "this version of prepack does not know the layout");
}

TEST_CASE("a folder that no loader takes as a checkpoint fails") {
  TempFolder temp;
  ConvertTo(temp / "out");
  std::filesystem::remove(temp / "out" / "config.json");
  EditManifest(temp / "out", [](Manifest& manifest) { manifest.files.erase("config.json"); });
  CheckedLevel checked = CheckIntact(temp / "out");
  REQUIRE(checked.level.problems.size() == 1);
  CHECK(checked.level.problems[0].where == "config.json");
  CHECK(checked.level.problems[0].message == "the manifest does not list it");

  // An index that leaves a tensor out.
  const std::filesystem::path index_path = temp / "out" / "model.safetensors.index.json";
  Json index = Json::parse(Value(ReadTextFile(index_path, 1 << 20)));
  index["weight_map"].erase("model.norm.weight");
  const std::string text = index.dump();
  std::ofstream(index_path) << text;
  EditManifest(temp / "out", [&](Manifest& manifest) {
    manifest.files["model.safetensors.index.json"] = {.bytes = text.size(),
                                                      .xxh3_128 = Xxh3Hex(text)};
  });
  checked = CheckIntact(temp / "out");
  REQUIRE(checked.level.problems.size() == 2);
  CHECK(checked.level.problems[0].message.find("the tensor is not in the index") !=
        std::string::npos);

  std::filesystem::remove(index_path);
  EditManifest(temp / "out",
               [](Manifest& manifest) { manifest.files.erase("model.safetensors.index.json"); });
  checked = CheckIntact(temp / "out");
  CHECK(checked.level.problems.size() > 3);
  CHECK(checked.level.problems[0].where == "model-00001-of-00003.safetensors");
  CHECK(checked.level.problems[0].message == "loaders do not take it for weights of this model");
}

TEST_CASE("a header that the manifest contradicts is told of the part") {
  TempFolder temp;
  ConvertTo(temp / "out");
  const auto problems = [&](const std::function<void(Manifest&)>& edit) {
    const Manifest good = Value(ReadManifest(temp / "out"));
    EditManifest(temp / "out", edit);
    std::vector<Problem> found = CheckIntact(temp / "out").level.problems;
    WriteManifest(temp / "out", good);
    return found;
  };
  const std::vector<Problem> type =
      problems([](Manifest& m) { m.modules.at(kDownProj).parts.at("weight").dtype = DType::kU32; });
  REQUIRE_FALSE(type.empty());
  CHECK(type[0].module == kDownProj);
  CHECK(type[0].message.find("another dtype, shape or offset") != std::string::npos);

  const std::vector<Problem> name =
      problems([](Manifest& m) { m.modules.at(kDownProj).parts.at("weight").tensor = "other"; });
  REQUIRE(name.size() >= 2);
  CHECK(name[0].module.empty());
  CHECK(name[0].message == "tensor " + kDownProj + ".weight is not in the manifest");
  CHECK(name[1].module == kDownProj);
  CHECK(name[1].message.find("does not have it") != std::string::npos);
}

TEST_CASE("a part that lies in no shard fails, as no loader would find it") {
  TempFolder temp;
  ConvertTo(temp / "out");
  EditManifest(temp / "out", [&](Manifest& manifest) {
    TensorRecord& part = manifest.modules.at(kDownProj).parts.at("weight");
    std::filesystem::copy(temp / "out" / part.file, temp / "out" / "weights.bin");
    const File file = Value(File::OpenForRead(temp / "out" / "weights.bin"));
    Progress progress;
    manifest.files["weights.bin"] = Value(HashFile(file, progress));
    part.file = "weights.bin";
  });
  const CheckedLevel checked = CheckIntact(temp / "out");
  CHECK(checked.failed() == std::set{kDownProj});
  const auto problem = std::ranges::find(checked.level.problems, "weights.bin", &Problem::where);
  REQUIRE(problem != checked.level.problems.end());
  CHECK(problem->message == "not a shard of weights");
}

TEST_CASE("with a sample only the parts of its modules are hashed") {
  const ModuleSample sample = {kDownProj};
  const std::string other = "model.layers.0.self_attn.k_proj";
  TempFolder temp;
  ConvertTo(temp / "out");
  const Manifest manifest = Value(ReadManifest(temp / "out"));
  const TensorRecord& of_other = manifest.modules.at(other).parts.at("weight");
  const TensorRecord& passed_through = manifest.tensors.front();
  FlipBits(temp / "out", of_other, 0, 1);
  FlipBits(temp / "out", passed_through, 0, 1);
  const CheckedLevel checked = CheckIntact(temp / "out", &sample);
  CHECK(checked.level.state == LevelState::kPassed);
  for (const auto& [name, figure] : checked.figures) {
    CHECK(figure.looked_at == (name == kDownProj));
    CHECK(figure.state(Level::kIntegrity) ==
          (name == kDownProj ? LevelState::kPassed : LevelState::kNotRun));
  }
  uint64_t skipped = 0;
  for (const auto& [name, record] : manifest.modules) {
    if (name == kDownProj) continue;
    for (const auto& [part, tensor] : record.parts) skipped += tensor.bytes();
  }
  for (const TensorRecord& tensor : manifest.tensors) skipped += tensor.bytes();
  REQUIRE(checked.level.notes.size() == 2);
  CHECK(checked.level.notes[0].message ==
        "not hashed: the parts of 6 of 7 modules and " + std::to_string(manifest.tensors.size()) +
            " tensors that pass through, " + std::to_string(skipped) + " bytes in all");
  CHECK(checked.level.notes[1].message.starts_with("of 3 shards only the size and the header"));

  FlipBits(temp / "out", manifest.modules.at(kDownProj).parts.at("weight"), 0, 1);
  CHECK(CheckIntact(temp / "out", &sample).failed() == std::set{kDownProj});
}

TEST_CASE("with a sample sizes, headers, side files and fingerprints are all checked still") {
  const ModuleSample sample = {kDownProj};
  TempFolder temp;
  ConvertTo(temp / "out");
  const std::string shard = PartOf(temp / "out", "model.layers.0.self_attn.k_proj", "weight").file;
  REQUIRE(shard != PartOf(temp / "out", kDownProj, "weight").file);
  const auto state = [&](const std::function<void(const std::filesystem::path& folder)>& damage) {
    const std::filesystem::path copy = temp / "copy";
    std::filesystem::copy(temp / "out", copy);
    damage(copy);
    CheckedLevel checked = CheckIntact(copy, &sample);
    std::filesystem::remove_all(copy);
    return checked;
  };
  CHECK(state([](const auto&) {}).level.state == LevelState::kPassed);
  const CheckedLevel grown = state([&](const auto& copy) {
    std::filesystem::resize_file(copy / shard, std::filesystem::file_size(copy / shard) + 1);
  });
  CHECK(grown.failed() == ModulesOf(temp / "out", shard));
  const CheckedLevel missing =
      state([&](const auto& copy) { std::filesystem::remove(copy / shard); });
  CHECK(missing.failed() == ModulesOf(temp / "out", shard));
  const CheckedLevel header = state([&](const auto& copy) {
    TensorRecord begin = PartOf(copy, kDownProj, "weight");
    begin.file = shard;
    begin.offset = 0;
    FlipBits(copy, begin, 0, 1);  // its length
  });
  CHECK(header.failed() == ModulesOf(temp / "out", shard));
  const CheckedLevel side =
      state([](const auto& copy) { std::ofstream(copy / "config.json", std::ios::app) << ' '; });
  CHECK(side.level.state == LevelState::kFailed);
  const CheckedLevel layout = state([](const auto& copy) {
    EditManifest(copy, [](Manifest& manifest) {
      manifest.layouts.at("vllm-cpu/wna16").fingerprint = std::string(32, '0');
    });
  });
  CHECK(layout.failed().size() == 7);
}

}  // namespace
}  // namespace prepack::testing
