// What the GEMM level says of wrong bytes. Hashes are not looked at, so that only the product of
// the packed bytes tells.

#include <cstddef>
#include <string>
#include <vector>

#include "prepack/layouts/blocked_desc.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/folder_damage.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

// Where a part of the module lies.
TensorRecord PartOfQProj(const std::filesystem::path& folder, const std::string& part) {
  return PartOf(folder, kQProj, part);
}

// Flips bits of one byte; a negative offset counts from the end of the part.
struct Damage {
  const char* part = "";
  int64_t offset = 0;
  int mask = 0;
};

void Apply(const std::filesystem::path& folder, const Damage& damage) {
  const TensorRecord part = PartOfQProj(folder, damage.part);
  const int64_t end = damage.offset < 0 ? static_cast<int64_t>(part.bytes()) : 0;
  const auto offset = static_cast<uint64_t>(end + damage.offset);
  FlipBits(folder, part, offset, damage.mask);
}

// The module fails because of its kernel figure, and no other does.
void CheckCaught(const GemmResult& result) {
  CHECK(result.level.state == LevelState::kFailed);
  REQUIRE_FALSE(result.level.problems.empty());
  for (const Problem& problem : result.level.problems) {
    CHECK(problem.where == "module " + kQProj);
  }
  INFO(result.level.problems.front().message);
  CHECK(result.level.problems.front().message.starts_with("the kernel SQNR "));
}

struct DamageCase {
  const char* checkpoint = "";
  PackedExample example;
  const char* layout = "";
  std::vector<Damage> damages;
};

TEST_CASE("one wrong number in a packed module shows in its product") {
  using enum WantedScheme;
  const std::vector<DamageCase> cases = {
      {"ct-w4a16-g32-asym",
       {"vllm-cpu"},
       "vllm-cpu/wna16",
       {{"weight", 100, 0x80}, {"weight_scale", 31, 0x01}, {"weight_zero_point", 9, 0x08}}},
      {"ct-w4a16-g32-asym",
       {"vllm-cpu", kW4A8},
       "vllm-cpu/int4-w4a8",
       // Blocks of 16 · 32 bytes of codes and 32 sums.
       {{"weight", 100, 0x80}, {"weight", 512 + 8 + 1, 0x40}, {"weight_zero_point", 9, 0x08}}},
      {"ct-w4a16-g128-sym",
       {"zentorch"},
       "zentorch/woq",
       {{"weight", 100, 0x80}, {"weight_scale", 31, 0x01}}},
      {"ct-w4a8", {"zentorch"}, "zentorch/da8w4", {{"weight", 100, 0x80}}},
      {"ct-w4a16-g32-asym",
       {"onednn"},
       "onednn/w4a16",
       {{"weight", 100, 0x80}, {"weight_zero_point", 9, 0x08}}},
      {"ct-w4a8", {"onednn"}, "onednn/w4a8", {{"weight", 100, 0x80}}},
      // 8-bit codes: the largest bit of several.
      {"ct-w8a8-dynamic", {"zentorch"}, "zentorch/int8", {{"weight", 100, 0x80}}},
      {"ct-w8a8-dynamic",
       {"onednn"},
       "onednn/w8a8",
       {{"weight", 100, 0x80}, {"weight", -2, 0x40}}},  // the last sum
      {"ct-w8a8-asym-act",
       {"vllm-cpu"},
       "vllm-cpu/int8-plain",
       {{"weight", 100, 0x80}, {"azp_adj", 3, 0x80}}},
      {"ct-fp8-block", {"vllm-cpu"}, "vllm-cpu/fp8-vnni", {{"weight_scale_inv", 2, 0x40}}},
      {"ct-fp8-dynamic", {"vllm-cpu"}, "vllm-cpu/fp8-vnni", {{"weight_scale", 2, 0x80}}},
      {"ct-w8a16-g128-sym", {"vllm-cpu"}, "vllm-cpu/bf16-vnni", {{"weight", 101, 0x40}}},
      {"ct-w8a16-g128-sym", {"onednn"}, "plain/bf16", {{"weight", 101, 0x40}}},
  };
  for (const DamageCase& c : cases) {
    INFO(c.checkpoint << " as " << c.layout);
    TempFolder temp;
    const std::filesystem::path source = Fixture(std::string("checkpoints/") + c.checkpoint);
    const ConvertReport report = Pack(source, c.example, temp / "out");
    CHECK(report.layouts.contains(c.layout));
    CHECK(RunModels(temp / "out", source).level.state == LevelState::kPassed);
    for (const Damage& damage : c.damages) {
      INFO(damage.part << " " << damage.offset);
      Apply(temp / "out", damage);
      CheckCaught(RunModels(temp / "out", source));
      Apply(temp / "out", damage);  // back
    }
  }
}

TEST_CASE("a wrong weight of a stacked expert that is not in the sample shows, too") {
  const TempFolder temp;
  const std::filesystem::path source = Fixture("checkpoints/gpt-oss-mxfp4");
  const std::string stack = "model.layers.0.mlp.experts.gate_up_proj";
  Pack(source, {.target = "vllm-cpu", .fuse = true}, temp / "out");
  // Of 4 experts with 192 x 64 weights, the first one makes up the sample.
  const uint64_t sampled = uint64_t{4} * 192 * 64;
  const GemmResult sound = RunModels(temp / "out", source, sampled);
  CHECK(sound.level.state == LevelState::kPassed);
  const GemmFigures& figures = *sound.modules.at(stack).gemm;
  REQUIRE(figures.inputs.size() == 5);
  CHECK(figures.channels == 192);
  CHECK(figures.inputs[2].rows == 64);
  const TensorRecord weight = PartOf(temp / "out", stack, "weight");
  for (const uint64_t expert : {1U, 3U}) {
    FlipBits(temp / "out", weight, weight.bytes() / 4 * expert + 77, 0x40);
    const GemmResult result = RunModels(temp / "out", source, sampled);
    CHECK(result.level.state == LevelState::kFailed);
    REQUIRE_FALSE(result.level.problems.empty());
    const std::string& message = result.level.problems.front().message;
    INFO(message);
    CHECK(message.starts_with("expert " + std::to_string(expert) + ": "));
    FlipBits(temp / "out", weight, weight.bytes() / 4 * expert + 77, 0x40);
  }
}

TEST_CASE("two input channels that change places show") {
  TempFolder temp;
  const std::filesystem::path source = Fixture("checkpoints/gptqmodel-w4-actorder-g128");
  Pack(source, {.target = "vllm-cpu"}, temp / "out");
  const TensorRecord part = PartOfQProj(temp / "out", "input_order");
  const std::vector<char> first = ReadBytes(temp / "out", part, 0, 4);
  const std::vector<char> other = ReadBytes(temp / "out", part, 800, 4);
  WriteBytes(temp / "out", part, 0, other);
  WriteBytes(temp / "out", part, 800, first);
  CheckCaught(RunModels(temp / "out", source));
}

TEST_CASE("an order of inputs that is none fails") {
  for (const std::vector<char>& entry : std::vector<std::vector<char>>{
           {0x7F, 0x7F, 0, 0}, {'\xFF', '\xFF', '\xFF', '\xFF'}, {5, 0, 0, 0}}) {
    TempFolder temp;
    const std::filesystem::path source = Fixture("checkpoints/gptqmodel-w4-actorder-g128");
    Pack(source, {.target = "vllm-cpu"}, temp / "out");
    const TensorRecord part = PartOfQProj(temp / "out", "input_order");
    WriteBytes(temp / "out", part, 0, entry);
    WriteBytes(temp / "out", part, 4, {5, 0, 0, 0});
    WriteBytes(temp / "out", part, 8, entry);
    const GemmResult result = RunModels(temp / "out", source);
    CHECK(result.level.state == LevelState::kFailed);
    REQUIRE(result.level.problems.size() == 1);
    CHECK(result.level.problems[0].message.find("does not name each input channel once") !=
          std::string::npos);
  }
}

TEST_CASE("a wrong scale of static activations shows end to end") {
  TempFolder temp;
  const std::filesystem::path source = Fixture("checkpoints/ct-w8a8-static");
  Pack(source, {.target = "onednn"}, temp / "out");
  Apply(temp / "out", {"input_scale", 3, 0x01});  // two binary places of the exponent
  const GemmResult result = RunModels(temp / "out", source);
  CHECK(result.level.state == LevelState::kFailed);
  REQUIRE(result.level.problems.size() == 1);
  CHECK(result.level.problems[0].message.starts_with("the end-to-end SQNR is too low"));
}

TEST_CASE("what a model does not take is not multiplied, and does not pass") {
  TempFolder temp;
  const std::filesystem::path source = Fixture("checkpoints/ct-w8a8-static");
  Pack(source, {.target = "onednn"}, temp / "out");
  WriteBytes(temp / "out", PartOfQProj(temp / "out", "input_scale"), 0, {0, 0, 0, 0});
  const GemmResult result = RunModels(temp / "out", source);
  CHECK(result.level.state == LevelState::kNotRun);
  REQUIRE(result.level.problems.size() == 1);
  CHECK(result.level.problems[0].message.starts_with("not multiplied: "));
  CHECK(result.level.problems[0].message.find("must be a number above 0") != std::string::npos);
}

TEST_CASE("a blocked form that no model knows is not multiplied") {
  TempFolder temp;
  const std::filesystem::path source = Fixture("checkpoints/ct-w8a8-dynamic");
  Pack(source, {.target = "onednn"}, temp / "out");
  Manifest manifest = Value(ReadManifest(temp / "out"));
  // Blocks of 32 output channels in place of 64: as many bytes.
  BlockedDesc desc = Ba16a64b4aDesc(384, 384);
  desc.inner[1].size = 32;
  desc.s8s8_compensation = true;
  desc.strides = {uint64_t{64} * 32, uint64_t{384} * 32};
  manifest.modules.at(kQProj).weights_desc = desc;
  WriteManifest(temp / "out", manifest);
  const GemmResult result = RunModels(temp / "out", source);
  CHECK(result.level.state == LevelState::kNotRun);
  REQUIRE(result.level.problems.size() == 1);
  CHECK(result.level.problems[0].message.find("this form of the weights") != std::string::npos);
}

TEST_CASE("a file that loses its end while a module is multiplied is an error, not a crash") {
  TempFolder temp;
  const std::filesystem::path source = Fixture("checkpoints/ct-w4a16-g128-sym");
  Pack(source, {.target = "vllm-cpu"}, temp / "out");
  const PackedFolder folder = Value(PackedFolder::Open(temp / "out"));
  const ModuleRecord& record = folder.manifest().modules.at(kQProj);
  const PackedModule packed = Value(PackedModule::Open(folder, kQProj, record));
  std::filesystem::resize_file(temp / "out" / record.parts.at("weight").file, 4096);
  size_t sum = 0;
  const Status status = Value(packed.PinWeight()).Visit([&](std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) sum += std::to_integer<size_t>(byte);
  });
  CheckError(status, ErrorKind::kMalformed, "shrank while prepack read it");

  std::filesystem::remove(temp / "out" / record.parts.at("weight").file);
  const PackedFolder without = Value(PackedFolder::Open(temp / "out"));
  const ModuleRecord& other = without.manifest().modules.at(kQProj);
  CheckError(Value(PackedModule::Open(without, kQProj, other)).PinWeight().status(),
             ErrorKind::kMalformed, "the file is missing");
}

}  // namespace
}  // namespace prepack::testing
