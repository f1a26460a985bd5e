#include "prepack/inspect/summary.h"

#include <fmt/format.h>

#include <deque>

#include "catch.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

ModuleSummary Module(std::string_view name, uint64_t n, uint64_t k, uint64_t bytes,
                     const Scheme& scheme) {
  return {.module = name, .scheme = scheme, .layout = "", .n = n, .k = k, .bytes = bytes};
}

const Scheme kGroups = {.group_size = 32};

Scheme PerChannel(uint64_t k) {
  return {.code = CodeType::kS8, .bits = 8, .granularity = Granularity::kChannel, .group_size = k};
}

TEST_CASE("modules of one scheme are one, whatever their sizes, most bytes first") {
  InspectReport report;
  report.modules = {Module("a", 8, 64, 300, kGroups), Module("b", 8, 64, 600, PerChannel(64)),
                    Module("c", 8, 128, 1100, PerChannel(128)), Module("d", 4, 64, 160, kGroups)};
  const std::vector<SchemeUse> uses = UseOfSchemes(report);
  REQUIRE(uses.size() == 2);
  CHECK(DescribeScheme(uses[0].scheme) == "w8a16 channel symmetric");
  CHECK(uses[0].modules == 2);
  CHECK(uses[0].weights == 8 * 192);
  CHECK(uses[0].bytes == 1700);
  CHECK(uses[0].BitsPerWeight() == Approx(1700 * 8.0 / (8 * 192)));
  CHECK(uses[1].modules == 2);
  CHECK(uses[1].bytes == 460);
}

TEST_CASE("schemes that differ in one thing, or lie in other layouts, are several") {
  InspectReport report;
  Scheme asymmetric = kGroups;
  asymmetric.symmetric = false;
  Scheme activations = kGroups;
  activations.activations = {.type = ActivationType::kInt, .bits = 8};
  Scheme fixed = activations;
  fixed.activations.dynamic = false;
  report.modules = {Module("a", 8, 64, 300, kGroups), Module("b", 8, 64, 300, asymmetric),
                    Module("c", 8, 64, 300, activations), Module("d", 8, 64, 300, fixed),
                    Module("e", 8, 64, 300, kGroups)};
  report.modules.back().layout = "vllm-cpu/wna16";
  CHECK(UseOfSchemes(report).size() == 5);
}

TEST_CASE("only modules that are alike are folded") {
  InspectReport report;
  std::deque<std::string> names;
  for (int layer = 0; layer < 12; ++layer) {
    const uint64_t bytes = layer == 5 ? 301 : 300;
    const std::string& up = names.emplace_back(fmt::format("l.{}.up", layer));
    const std::string& o = names.emplace_back(fmt::format("l.{}.o", layer));
    report.modules.push_back(Module(up, 8, 64, bytes, kGroups));
    report.modules.push_back(
        Module(o, 8, layer < 4 ? 32 : 64, 300, layer < 10 ? kGroups : PerChannel(64)));
  }
  std::vector<std::string> texts;
  for (const FoldedModules& folded : FoldModules(report)) {
    texts.push_back(fmt::format("{} {} {}", folded.names.text, folded.like->k, folded.names.names));
  }
  CHECK(texts == std::vector<std::string>{"l.{0..3}.o 32 4", "l.{0..4,6..11}.up 64 11",
                                          "l.{4..9}.o 64 6", "l.5.up 64 1", "l.{10,11}.o 64 2"});
}

TEST_CASE("tensors that no module has are counted by dtype") {
  const InspectReport report = Value(Inspect(Fixture("checkpoints/ct-w4a16-g128-sharded")));
  const std::vector<DTypeUse> uses = TensorsOutsideModules(report);
  REQUIRE(uses.size() == 1);
  CHECK(uses[0].dtype == DType::kBF16);
  CHECK(uses[0].tensors == 25 - 7 * 3);
  uint64_t bytes = 0;
  for (const ModuleSummary& module : report.modules) bytes += module.bytes;
  CHECK(uses[0].bytes == report.tensor_bytes - bytes);
}

TEST_CASE("tensors of the same dtype and shape are folded") {
  const InspectReport report = Value(Inspect(Fixture("checkpoints/ct-w4a16-g128-sharded")));
  size_t names = 0;
  for (const FoldedTensors& folded : FoldTensors(report)) names += folded.names.names;
  CHECK(names == 25);
}

TEST_CASE("every target says what it would take, in the figures of its plan") {
  const InspectReport report = Value(Inspect(Fixture("checkpoints/ct-mixed")));
  REQUIRE(report.targets.size() == 4);
  const TargetUse& vllm = report.targets[0];
  CHECK(vllm.target == "vllm-cpu");
  CHECK(vllm.modules == report.modules.size());
  CHECK(vllm.packed == 6);
  size_t packed = 0;
  for (const auto& [layout, modules] : vllm.layouts) packed += modules;
  CHECK(packed == vllm.packed);
  CHECK(vllm.left.empty());
  CHECK(vllm.BitsPerWeight() > 4);
  CHECK(vllm.BitsPerWeight() < 16);
}

TEST_CASE("a target that takes nothing says why") {
  const InspectReport report = Value(Inspect(Fixture("checkpoints/ct-fp8-block")));
  REQUIRE(report.targets.size() == 4);
  const TargetUse& zentorch = report.targets[1];
  CHECK(zentorch.target == "zentorch");
  CHECK(zentorch.packed == 0);
  CHECK(zentorch.output_bytes == report.tensor_bytes);
  REQUIRE(zentorch.left.size() == 1);
  CHECK(zentorch.left[0].modules == 7);
  CHECK(zentorch.left[0].first == "model.layers.0.mlp.down_proj");
  CHECK(zentorch.left[0].why.find("the weights are FP8") != std::string::npos);
}

TEST_CASE("a file and a folder that cannot be described have no targets") {
  CHECK(Value(Inspect(Fixture("checkpoints/ct-mixed/model.safetensors"))).targets.empty());
  CHECK(Value(Inspect(Fixture("float-bf16"))).targets.empty());
}

}  // namespace
}  // namespace prepack::testing
