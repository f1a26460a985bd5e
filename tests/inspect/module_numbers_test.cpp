#include "prepack/inspect/summary.h"

#include <algorithm>
#include <limits>
#include <string>

#include "prepack/inspect/weight_values.h"
#include "temp_folder.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

ModuleNumbers Measured(const std::filesystem::path& path, const std::string& module) {
  return Value(MeasureModule(Value(OpenedFolder::Open(path)), module));
}

void RequireSame(const ModuleNumbers& a, const ModuleNumbers& b) {
  CHECK(a.n == b.n);
  CHECK(a.k == b.k);
  CHECK(a.reordered == b.reordered);
  CHECK(a.min_weight == b.min_weight);
  CHECK(a.max_weight == b.max_weight);
  CHECK(a.codes == b.codes);
  CHECK(a.zero_points == b.zero_points);
  REQUIRE(a.scales.has_value());
  REQUIRE(b.scales.has_value());
  CHECK(a.scales->count == b.scales->count);
  CHECK(a.scales->min == b.scales->min);
  CHECK(a.scales->median == b.scales->median);
  CHECK(a.scales->max == b.scales->max);
}

TEST_CASE("a module that was fused has the numbers that it had") {
  const std::string source = "checkpoints/ct-w4a16-g32-asym";
  for (const char* target : {"vllm-cpu", "zentorch", "onednn"}) {
    const TempFolder temp;
    Pack(Fixture(source), {.target = target, .fuse = true}, temp / "packed");
    for (const char* module : {"q_proj", "k_proj", "v_proj"}) {
      CAPTURE(target, module);
      const std::string name = std::string("model.layers.0.self_attn.") + module;
      RequireSame(Measured(temp / "packed", name), Measured(Fixture(source), name));
    }
  }
}

TEST_CASE("the range is that of the weights one by one") {
  for (const char* fixture : {"gptqmodel-w3-sym", "ct-fp8-block", "awq-gemvfast-g128",
                              "ct-old-actorder-group-g128", "ar-w2-sym"}) {
    CAPTURE(fixture);
    const std::filesystem::path path = Fixture("checkpoints") / fixture;
    const OpenedFolder folder = Value(OpenedFolder::Open(path));
    const ShownModule shown = Value(FindShown(folder, kQProj));
    float min = std::numeric_limits<float>::infinity();
    float max = -min;
    for (uint64_t n = 0; n < shown.n; ++n) {
      const WeightRow row = Value(shown.Row(n));
      min = std::min(min, std::ranges::min(row.values));
      max = std::max(max, std::ranges::max(row.values));
    }
    const ModuleNumbers numbers = Measured(path, kQProj);
    CHECK(numbers.min_weight == min);
    CHECK(numbers.max_weight == max);
    uint64_t codes = 0;
    for (const uint64_t count : *numbers.codes) codes += count;
    CHECK(codes == numbers.n * numbers.k);
  }
}

TEST_CASE("scales that channels share are counted once") {
  const ModuleNumbers numbers = Measured(Fixture("checkpoints/ct-fp8-block"), kDownProj);
  CHECK(numbers.scales->count == 3 * 12);
  CHECK_FALSE(numbers.zero_points.has_value());
}

TEST_CASE("a module that is not there is not measured") {
  const OpenedFolder folder = Value(OpenedFolder::Open(Fixture("checkpoints/ct-mixed")));
  CheckError(MeasureModule(folder, "model.layers.0.mlp.down_prj").status(), ErrorKind::kUsage,
             "Did you mean");
}

}  // namespace
}  // namespace prepack::testing
