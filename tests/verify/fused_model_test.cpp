#include "prepack/packed/manifest.h"

#include <algorithm>
#include <span>

#include "prepack/model/stacked_linear.h"
#include "temp_folder.h"
#include "verify/in_parts.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

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
  for (const auto& linear : modules) names.emplace_back(linear->module());
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

TEST_CASE("the manifest has no say in what is fused under a name") {
  FusedExample example;
  std::vector<FusedMember> members = example.manifest.modules.at(kGateUp).fused.All();
  SECTION("another order") {
    std::swap(members[0], members[1]);
  }
  SECTION("another size") {
    ++members[0].n;
  }
  SECTION("nothing") {
    members.clear();
  }
  example.manifest.modules.at(kGateUp).fused = FusedMembers(members);
  RequireOk(FuseAsPacked(example.manifest, example.model));
  REQUIRE(example.model.Find(kGateUp) != nullptr);
  const std::span<const QuantizedLinear* const> fused = example.model.Find(kGateUp)->members();
  REQUIRE(fused.size() == 2);
  CHECK(fused[0]->module() == kLayer + ".mlp.gate_proj");
  CHECK(fused[1]->module() == kLayer + ".mlp.up_proj");
}

TEST_CASE("a source that does not have what was fused stays as it is") {
  FusedExample example;
  std::erase_if(example.model.modules,
                [](const auto& linear) { return linear->module() == kLayer + ".mlp.up_proj"; });
  RequireOk(FuseAsPacked(example.manifest, example.model));
  CHECK(example.model.Find(kGateUp) == nullptr);
  CHECK(example.model.Find(kLayer + ".mlp.gate_proj") != nullptr);
  CHECK(example.model.Find(kQkv) != nullptr);
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
  return Value(VerifyAlsoInParts(options, progress));
}

const ModuleVerification& ModuleOf(const VerifyReport& report, const std::string& name) {
  for (const ModuleVerification& module : report.modules) {
    if (module.module == name) return module;
  }
  FAIL("no module " << name);
  return report.modules.front();
}

bool Says(const LevelResult& level, const std::string& module, const std::string& text) {
  return std::ranges::any_of(level.problems, [&](const Problem& problem) {
    return problem.module == module && problem.message.find(text) != std::string::npos;
  });
}

TEST_CASE("what a fused module is made of follows from its name, whatever the manifest says") {
  FusedExample example;
  auto& modules = example.manifest.modules;
  std::vector<FusedMember> gate_up = modules.at(kGateUp).fused.All();
  std::vector<FusedMember> qkv = modules.at(kQkv).fused.All();
  std::string changed = kGateUp;
  SECTION("another order") {
    std::swap(gate_up[0], gate_up[1]);
  }
  SECTION("another layer of the model") {
    for (FusedMember& member : gate_up) member.module.replace(0, kLayer.size(), "model.layers.1");
  }
  SECTION("a layer that is no part of it, of the right size") {
    gate_up[1].module = kLayer + ".mlp.w3";
  }
  SECTION("a layer twice") {
    changed = kQkv;
    qkv[2].module = qkv[1].module;
  }
  SECTION("all but one") {
    changed = kQkv;
    qkv[0].n += qkv[1].n;
    qkv.erase(qkv.begin() + 1);
  }
  SECTION("a name that stands for one layer") {
    changed = kLayer + ".mlp.both_proj";
    ModuleRecord record = modules.extract(kGateUp).mapped();
    for (auto& [part, tensor] : record.parts) tensor.tensor = changed + "." + part;
    modules.emplace(changed, record);
  }
  modules.at(modules.contains(kGateUp) ? kGateUp : changed).fused = FusedMembers(gate_up);
  modules.at(kQkv).fused = FusedMembers(qkv);
  const VerifyReport report = VerifyChanged(example);
  CHECK(Says(report.level(Level::kIntegrity), changed,
             "its members are not the layers that runtimes expect under this name"));
  CHECK(ModuleOf(report, changed).state(Level::kExactness) == LevelState::kFailed);
  CHECK(report.Verdict() == LevelState::kFailed);
}

TEST_CASE("members of other sizes, and members that are not named, fail exactness") {
  FusedExample example;
  std::vector<FusedMember> members = example.manifest.modules.at(kGateUp).fused.All();
  SECTION("sizes") {
    ++members[0].n;
    --members[1].n;
  }
  SECTION("no names") {
    members.clear();
  }
  example.manifest.modules.at(kGateUp).fused = FusedMembers(members);
  const VerifyReport report = VerifyChanged(example);
  CHECK(report.level(Level::kIntegrity).state == LevelState::kPassed);
  CHECK(Says(report.level(Level::kExactness), kGateUp,
             "lists other layers for this module than the source has"));
}

TEST_CASE("a fused folder passes all levels, against the unquantized model too") {
  FusedExample example;
  VerifyOptions options;
  options.folder = example.temp / "out";
  options.source = example.source;
  options.baseline = Fixture("float-bf16");
  options.engine = EngineChoice::kReference;
  Progress progress;
  const VerifyReport report = Value(VerifyAlsoInParts(options, progress));
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
}  // namespace prepack::testing
