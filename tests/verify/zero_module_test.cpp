// Modules of zeros: pruned experts, blocks that were added and not trained. No ratio says that
// their products are right, so they are compared with zero.

#include <algorithm>

#include "formats/tiny_model.h"
#include "temp_folder.h"
#include "verify/folder_damage.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

TestCheckpoint ZeroW4() {
  TestCheckpoint model = TinyModel({"a"});
  std::ranges::fill(model.At("a.weight_packed").bytes, std::byte{0x88});
  return model;
}

// Codes and zero points are 5, so that their difference is 0.
TestCheckpoint ZeroAsymmetric() {
  TestCheckpoint model = TinyModel({"a"});
  model.config["quantization_config"]["config_groups"]["g"]["weights"]["symmetric"] = false;
  std::ranges::fill(model.At("a.weight_packed").bytes, std::byte{0x55});
  model.tensors.push_back(
      {"a.weight_zero_point", "I32", {4, 1}, std::vector<std::byte>(16, std::byte{0x55})});
  return model;
}

TestCheckpoint ZeroW8() {
  TestCheckpoint model = TinyW8A8Model({"a"});
  std::ranges::fill(model.At("a.weight").bytes, std::byte{0});
  return model;
}

TEST_CASE(
    "a module of zeros passes with every kernel, and fails with one weight that is not zero") {
  const auto [model, example] = GENERATE(table<TestCheckpoint, PackedExample>(
      {{ZeroW4(), {.target = "vllm-cpu"}},
       {ZeroW4(), {.target = "vllm-cpu", .scheme = WantedScheme::kW4A8}},
       {ZeroW4(), {.target = "zentorch"}},
       {ZeroW4(), {.target = "onednn"}},
       {ZeroAsymmetric(), {.target = "vllm-cpu"}},
       {ZeroAsymmetric(), {.target = "zentorch"}},
       {ZeroAsymmetric(), {.target = "onednn"}},
       {ZeroW8(), {.target = "vllm-cpu"}},
       {ZeroW8(), {.target = "zentorch"}},
       {ZeroW8(), {.target = "onednn"}}}));
  CAPTURE(example.target, static_cast<int>(example.scheme));
  const TempFolder temp;
  model.Write(temp / "source");
  Pack(temp / "source", example, temp / "out");
  const GemmResult zeros = RunModels(temp / "out", temp / "source");
  for (const Problem& problem : zeros.level.problems) UNSCOPED_INFO(problem.message);
  CHECK(zeros.level.state == LevelState::kPassed);
  CHECK(zeros.modules.at("a").state(Level::kGemm) == LevelState::kPassed);
  const TensorRecord weight = PartOf(temp / "out", "a", "weight");
  FlipBits(temp / "out", weight, 3, 0x10);
  CHECK(RunModels(temp / "out", temp / "source").level.state == LevelState::kFailed);
}

}  // namespace
}  // namespace prepack::testing
