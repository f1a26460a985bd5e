#include "verify/fused_model.h"

#include "canonical/stacked_linear.h"
#include "temp_folder.h"
#include "verify/packed_example.h"

namespace prepack {
namespace {

using testing::CheckError;
using testing::Fixture;
using testing::Pack;
using testing::RequireOk;
using testing::TempFolder;
using testing::Value;

const std::string kLayer = "model.layers.0";
const std::string kQkv = kLayer + ".self_attn.qkv_proj";
const std::string kGateUp = kLayer + ".mlp.gate_up_proj";

// A real checkpoint and the manifest of its fused folder, as a test changes it.
struct FusedExample {
  FusedExample()
      : source(Fixture("checkpoints/ct-w4a16-g128-sym")),
        report(Pack(source, {.target = "vllm-cpu", .fuse = true}, temp / "out")),
        checkpoint(Value(Checkpoint::Open(source))),
        model(Value(ReadQuantizedModel(checkpoint))),
        manifest(Value(ReadManifest(temp / "out"))) {}

  TempFolder temp;
  std::filesystem::path source;
  ConvertReport report;
  Checkpoint checkpoint;
  QuantizedModel model;
  Manifest manifest;
};

std::vector<std::string> Names(const std::vector<std::unique_ptr<QuantizedLinear>>& modules) {
  std::vector<std::string> names;
  for (const auto& linear : modules) names.push_back(linear->module());
  return names;
}

TEST_CASE("the source is fused as the packed folder is") {
  FusedExample example;
  CHECK(example.report.fused_modules == 2);
  RequireOk(FuseAsPacked(example.manifest, example.model));
  CHECK(Names(example.model.modules) ==
        std::vector{kLayer + ".mlp.down_proj", kGateUp, kLayer + ".self_attn.o_proj", kQkv});
  CHECK(example.model.members.size() == 5);
  REQUIRE(example.model.Find(kGateUp) != nullptr);
  CHECK(example.model.Find(kGateUp)->members().size() == 2);
}

TEST_CASE("a source that does not have what was fused stays as it is") {
  FusedExample example;
  std::vector<FusedMember>& members = example.manifest.modules.at(kGateUp).fused;
  SECTION("another name") {
    members[0].module += "x";
  }
  SECTION("another size") {
    ++members[0].n;
  }
  SECTION("a member twice") {
    example.manifest.modules.at(kQkv).fused[1].module = members[0].module;
  }
  RequireOk(FuseAsPacked(example.manifest, example.model));
  CHECK(example.model.modules.size() + example.model.members.size() >= 7);
  CHECK((example.model.Find(kGateUp) == nullptr) != (example.model.Find(kQkv) == nullptr));
}

// What verify says of the two fused modules of a folder whose manifest says something else.
VerifyReport VerifyChanged(FusedExample& example) {
  RequireOk(WriteManifest(example.temp / "out" / "changed.json", example.manifest,
                          OwnRecords(example.manifest)));
  std::filesystem::rename(example.temp / "out" / "changed.json",
                          example.temp / "out" / "prepack.json");
  VerifyOptions options;
  options.folder = example.temp / "out";
  options.source = example.source;
  options.engine = EngineChoice::kReference;
  Progress progress;
  return Value(Verify(options, progress));
}

const ModuleVerification& ModuleOf(const VerifyReport& report, const std::string& name) {
  for (const ModuleVerification& module : report.modules) {
    if (module.module == name) return module;
  }
  FAIL("no module " << name);
  return report.modules.front();
}

TEST_CASE("verify finds members in another order than the manifest says") {
  FusedExample example;
  std::vector<FusedMember>& members = example.manifest.modules.at(kGateUp).fused;
  std::swap(members[0], members[1]);
  const VerifyReport report = VerifyChanged(example);
  CHECK(ModuleOf(report, kQkv).exact == std::optional(true));
  CHECK(ModuleOf(report, kGateUp).exact == std::optional(false));
  // The second path from the source to weights sees it by itself.
  CHECK(ModuleOf(report, kQkv).state(Level::kGemm) == LevelState::kPassed);
  CHECK(ModuleOf(report, kGateUp).state(Level::kGemm) == LevelState::kFailed);
}

TEST_CASE("verify says that the source lacks what was fused") {
  FusedExample example;
  example.manifest.modules.at(kGateUp).fused[1].module += "x";
  const VerifyReport report = VerifyChanged(example);
  bool found = false;
  for (const auto& problem : report.level(Level::kExactness).problems) {
    found = found || (problem.module == kGateUp &&
                      problem.message.find("no such quantized module") != std::string::npos);
  }
  CHECK(found);
}

TEST_CASE("a fused folder passes all levels, against the unquantized model too") {
  FusedExample example;
  VerifyOptions options;
  options.folder = example.temp / "out";
  options.source = example.source;
  options.baseline = Fixture("float-bf16");
  options.engine = EngineChoice::kReference;
  Progress progress;
  const VerifyReport report = Value(Verify(options, progress));
  for (const Level level : {Level::kIntegrity, Level::kExactness, Level::kGemm, Level::kQuality}) {
    CHECK(report.level(level).state == LevelState::kPassed);
  }
  // 4 bits in groups of 128 have 17 to 20 dB.
  for (const ModuleVerification& module : report.modules) {
    REQUIRE(module.quality.has_value());
    CHECK(module.quality->weight_sqnr_db > 15);
    CHECK(module.quality->output_sqnr_db > 15);
  }
}

}  // namespace
}  // namespace prepack
