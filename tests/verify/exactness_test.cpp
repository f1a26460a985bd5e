// What level 2 says of folders that are not their source any more, and of which modules.

#include "prepack/verify/exactness.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/checked_level.h"
#include "verify/folder_damage.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;

const std::string kOther = "model.layers.0.self_attn.k_proj";

CheckedLevel CheckExact(const fs::path& path, const fs::path& from,
                        const ModuleSample* sample = nullptr) {
  const PackedFolder folder = Value(PackedFolder::Open(path));
  const Checkpoint source = Value(Checkpoint::Open(from));
  const QuantizedModel model = Value(ReadQuantizedModel(source));
  CheckedLevel checked{.which = Level::kExactness};
  for (const auto& [name, record] : folder.manifest().modules) checked.figures[name];
  Progress progress;
  ExactnessCheck check(folder, source, model, sample, progress);
  RequireOk(check.CompareRecords());
  RequireOk(RunOnTwoThreads(folder, sample, {.exactness = &check}, progress).exactness);
  checked.level = Value(check.Finish(2, checked.figures));
  return checked;
}

// A checkpoint of 7 modules in temp / "source", packed in temp / "out".
void PackRealCheckpoint(const TempFolder& temp) {
  fs::copy(Fixture("checkpoints/ct-w4a16-g32-asym"), temp / "source");
  Pack(temp / "source", {.target = "vllm-cpu"}, temp / "out");
}

// Flips the lowest bit of the first byte of a source tensor.
void FlipSource(const fs::path& folder, const std::string& name) {
  const Checkpoint source = Value(Checkpoint::Open(folder));
  const StoredTensor& tensor = *source.Find(name);
  TensorRecord record;
  record.file = source.files()[tensor.file].name;
  record.offset = tensor.offset;
  FlipBits(folder, record, 0, 1);
}

TEST_CASE("a folder that is its source passes in all of its modules") {
  TempFolder temp;
  PackRealCheckpoint(temp);
  const CheckedLevel checked = CheckExact(temp / "out", temp / "source");
  CHECK(checked.level.state == LevelState::kPassed);
  CHECK(checked.level.notes.empty());
  CHECK(checked.figures.size() == 7);
  for (const auto& [name, figure] : checked.figures) {
    CHECK(figure.looked_at);
    CHECK(figure.exact == true);
    CHECK(figure.state(Level::kExactness) == LevelState::kPassed);
  }
}

TEST_CASE("records that are compared twice are told of once") {
  TempFolder temp;
  PackRealCheckpoint(temp);
  const PackedFolder folder = Value(PackedFolder::Open(temp / "out"));
  const Checkpoint source = Value(Checkpoint::Open(Fixture("checkpoints/ct-w8a8-dynamic")));
  const QuantizedModel model = Value(ReadQuantizedModel(source));
  Progress progress;
  ExactnessCheck check(folder, source, model, nullptr, progress);
  RequireOk(check.CompareRecords());
  RequireOk(check.CompareRecords());
  CHECK_FALSE(check.SourceHoldsModules());
  ModuleFigures figures;
  for (const auto& [name, record] : folder.manifest().modules) figures[name];
  const LevelResult result = Value(check.Finish(1, figures));
  const auto of_scheme = std::ranges::count_if(result.problems, [](const Problem& problem) {
    return problem.module == kOther &&
           problem.message == "the source has another shape or scheme than the manifest";
  });
  CHECK(of_scheme == 1);
}

TEST_CASE("what differs is told of its module") {
  TempFolder temp;
  PackRealCheckpoint(temp);
  FlipBits(temp / "out", PartOf(temp / "out", kDownProj, "weight_scale"), 0, 1);
  const CheckedLevel checked = CheckExact(temp / "out", temp / "source");
  CHECK(checked.failed() == std::set{kDownProj});
  REQUIRE(checked.level.problems.size() == 1);
  CHECK(checked.level.problems[0].module == kDownProj);
  CHECK(checked.level.problems[0].where == "module " + kDownProj);
  CHECK(checked.level.problems[0].message.starts_with("1 scales differ from the source"));
}

TEST_CASE("a changed source is told of the module that it changes, and as a whole") {
  TempFolder temp;
  PackRealCheckpoint(temp);
  FlipSource(temp / "source", kDownProj + ".weight_packed");
  const CheckedLevel checked = CheckExact(temp / "out", temp / "source");
  CHECK(checked.failed() == std::set{kDownProj});
  REQUIRE(checked.level.problems.size() == 3);
  CHECK(checked.level.problems[0].message.starts_with("1 codes differ from the source"));
  CHECK(checked.level.problems[1].module.empty());
  CHECK(checked.level.problems[1].where == "source");
  CHECK(checked.level.problems[2].module == kDownProj);
  CHECK(checked.level.problems[2].message == "the manifest has another hash of its source tensors");
}

TEST_CASE("a tensor that passed through is compared to its last byte") {
  TempFolder temp;
  PackRealCheckpoint(temp);
  // More than one piece of those that are compared at a time.
  const std::string name = "model.embed_tokens.weight";
  const Manifest manifest = Value(ReadManifest(temp / "out"));
  const auto record = std::ranges::find(manifest.tensors, name, &TensorRecord::tensor);
  REQUIRE(record != manifest.tensors.end());
  const uint64_t last = record->bytes() - 1;
  REQUIRE(last > 1 << 18);
  FlipBits(temp / "out", *record, last, 0x10);
  const CheckedLevel checked = CheckExact(temp / "out", temp / "source");
  CHECK(checked.failed().empty());
  REQUIRE(checked.level.problems.size() == 1);
  CHECK(checked.level.problems[0].module.empty());
  CHECK(checked.level.problems[0].where == "tensor " + name);
  CHECK(checked.level.problems[0].message ==
        "differs from the source at byte " + std::to_string(last));
}

// Copies the checkpoint as one of another model.
void CopyAsModel(const fs::path& checkpoint, const std::string& from, const std::string& to,
                 const fs::path& copy) {
  fs::copy(checkpoint, copy);
  std::string config = Value(ReadTextFile(copy / "config.json", 1 << 20));
  const std::string key = "\"model_type\": \"";
  const size_t at = config.find(key + from + '"');
  REQUIRE(at != std::string::npos);
  config.replace(at + key.size(), from.size(), to);
  fs::remove(copy / "config.json");
  RequireOk(WriteTextFile(copy / "config.json", config));
}

TEST_CASE("whether a plain weight lies [K, N] is what the model says, not the folder") {
  const fs::path gpt2 = Fixture("checkpoints/gptqmodel-gpt2-w8");
  TempFolder temp;
  CopyAsModel(gpt2, "gpt2", "other", temp / "other");
  Pack(gpt2, {.target = "onednn"}, temp / "inputs_first");
  Pack(temp / "other", {.target = "onednn"}, temp / "outputs_first");
  CHECK(CheckExact(temp / "inputs_first", gpt2).level.state == LevelState::kPassed);
  CHECK(CheckExact(temp / "outputs_first", temp / "other").level.state == LevelState::kPassed);

  const CheckedLevel transposed = CheckExact(temp / "outputs_first", gpt2);
  CHECK(transposed.failed().size() == 8);
  REQUIRE_FALSE(transposed.level.problems.empty());
  CHECK(transposed.level.problems[0].message.starts_with(
      "layout plain/bf16 does not take this module: the layer is a Conv1D"));
  const CheckedLevel as_others = CheckExact(temp / "inputs_first", temp / "other");
  CHECK(as_others.failed().size() == 8);
  REQUIRE_FALSE(as_others.level.problems.empty());
  CHECK(as_others.level.problems[0].message.starts_with(
      "layout plain/bf16-conv1d does not take this module: the layer is not a Conv1D"));
}

TEST_CASE("with a sample only its modules are compared") {
  const ModuleSample sample = {kDownProj};
  TempFolder temp;
  PackRealCheckpoint(temp);
  const Manifest manifest = Value(ReadManifest(temp / "out"));
  FlipBits(temp / "out", PartOf(temp / "out", kOther, "weight"), 0, 1);
  FlipBits(temp / "out", manifest.tensors.front(), 0, 1);
  FlipSource(temp / "source", kOther + ".weight_packed");
  const CheckedLevel checked = CheckExact(temp / "out", temp / "source", &sample);
  CHECK(checked.level.state == LevelState::kPassed);
  for (const auto& [name, figure] : checked.figures) {
    CHECK(figure.looked_at == (name == kDownProj));
    CHECK(figure.exact.has_value() == (name == kDownProj));
    CHECK(figure.state(Level::kExactness) ==
          (name == kDownProj ? LevelState::kPassed : LevelState::kNotRun));
  }
  REQUIRE(checked.level.notes.size() == 3);
  CHECK(checked.level.notes[0].message ==
        "compared by shape, scheme and rounding only: 6 of 7 modules");
  uint64_t bytes = 0;
  for (const TensorRecord& tensor : manifest.tensors) bytes += tensor.bytes();
  CHECK(checked.level.notes[1].message ==
        "compared by dtype and shape only: " + std::to_string(manifest.tensors.size()) +
            " tensors that pass through, " + std::to_string(bytes) + " bytes in all");
  CHECK(checked.level.notes[2].message.starts_with("the fingerprint of the source was not "));
  CHECK(checked.level.notes[2].message.ends_with("only the 4 in the sample were hashed"));

  FlipSource(temp / "source", kDownProj + ".weight_scale");
  const CheckedLevel stale = CheckExact(temp / "out", temp / "source", &sample);
  CHECK(stale.failed() == std::set{kDownProj});
  REQUIRE(stale.level.problems.size() == 2);
  CHECK(stale.level.problems[1].message == "the manifest has another hash of its source tensors");
}

TEST_CASE("with a sample the manifest must be true of all modules still") {
  const ModuleSample sample = {kDownProj};
  TempFolder temp;
  PackRealCheckpoint(temp);
  const auto failed = [&](const std::function<void(Manifest&)>& edit) {
    const Manifest good = Value(ReadManifest(temp / "out"));
    EditManifest(temp / "out", edit);
    const CheckedLevel checked = CheckExact(temp / "out", temp / "source", &sample);
    WriteManifest(temp / "out", good);
    return std::pair(checked.level.state, checked.failed());
  };
  using Failed = std::pair<LevelState, std::set<std::string>>;
  CHECK(failed([](Manifest& m) { m.modules.at(kOther).n = 256; }) ==
        Failed{LevelState::kFailed, {kOther}});
  CHECK(failed([](Manifest& m) { m.modules.at(kOther).scale_rounding = "F32 to BF16"; }) ==
        Failed{LevelState::kFailed, {kOther}});
  CHECK(failed([](Manifest& m) { m.tensors.front().shape = {1}; }) ==
        Failed{LevelState::kFailed, {}});
  CHECK(failed([](Manifest& m) { m.tensors.pop_back(); }) == Failed{LevelState::kFailed, {}});
  CHECK(failed([](Manifest& m) { m.files.erase("config.json"); }) ==
        Failed{LevelState::kFailed, {}});
}

}  // namespace
}  // namespace prepack::testing
