#include "prepack/convert/output_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "catch.h"
#include "formats/ct_example.h"
#include "formats/gptq_example.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

struct Opened {
  Result<Checkpoint> checkpoint = Checkpoint::Open(Fixture("checkpoints/ct-w4a16-g32-asym"));
  Result<QuantizedModel> model = ReadQuantizedModel(*checkpoint);
  Result<Plan> plan = MakePlan(*checkpoint, *model, {.target = "zentorch", .activation_dtype = {}});
};

size_t CountPacked(const OutputShards& shards) {
  return static_cast<size_t>(std::ranges::count(shards.units, nullptr, &OutputUnit::copied));
}

TEST_CASE("a small model goes into one file") {
  const Opened opened;
  const Result<OutputShards> shards = PlanOutputShards(*opened.checkpoint, *opened.plan);
  REQUIRE(shards.ok());
  CHECK(shards->names == std::vector<std::string>{"model.safetensors"});
  CHECK(CountPacked(*shards) == 7);
  CHECK(shards->units.size() == 7 + 4);  // embedding and three norms
  CHECK(shards->file_bytes == shards->plans[0].file_bytes);
}

TEST_CASE("shards hold every tensor once, and slots point at it") {
  const Opened opened;
  const Result<OutputShards> shards = PlanOutputShards(*opened.checkpoint, *opened.plan, 500'000);
  REQUIRE(shards.ok());
  REQUIRE(shards->names.size() > 2);
  CHECK(shards->names[0] ==
        "model-00001-of-0000" + std::to_string(shards->names.size()) + ".safetensors");
  std::set<std::string> names;
  for (const SafetensorsPlan& plan : shards->plans) {
    for (const TensorInfo& tensor : plan.header.tensors) {
      CHECK(names.insert(tensor.name).second);
    }
  }
  CHECK(names.size() == 7 * 3 + 4);
  const auto name_at = [&](const OutputSlot& slot) {
    return shards->plans[slot.shard].header.tensors[slot.index].name;
  };
  for (const OutputUnit& unit : shards->units) {
    if (unit.copied != nullptr) {
      CHECK(unit.slots.size() == 1);
      CHECK(name_at(unit.slots[0]) == unit.copied->name);
      continue;
    }
    const ModulePlan& module = opened.plan->modules[unit.module];
    REQUIRE(unit.slots.size() == module.parts.size());
    for (size_t i = 0; i < unit.slots.size(); ++i) {
      CHECK(name_at(unit.slots[i]) ==
            fmt::format("{}.{}", module.linear->module(), module.parts[i].name));
      CHECK(unit.slots[i].shard == unit.slots[0].shard);  // a module is not torn apart
    }
  }
}

TEST_CASE("shards take turns, four at a time, and every unit has one turn") {
  const Opened opened;
  const OutputShards one = Value(PlanOutputShards(*opened.checkpoint, *opened.plan));
  std::vector<size_t> in_order(one.units.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  CHECK(UnitsInTurns(one) == in_order);

  // 2, 3, 1, 1 units in the first four shards, 2 in the fifth.
  OutputShards several;
  several.names.resize(5);
  for (const uint32_t shard : {0U, 0U, 1U, 1U, 1U, 2U, 3U, 4U, 4U}) {
    several.slots.push_back({.shard = shard, .index = 0});
  }
  for (const OutputSlot& slot : several.slots) {
    several.units.push_back({.module = 0, .copied = nullptr, .slots = {&slot, 1}});
  }
  CHECK(UnitsInTurns(several) == std::vector<size_t>{0, 2, 5, 6, 1, 3, 4, 7, 8});
}

// The names of all tensors of some shards.
std::set<std::string> NamesOf(const OutputShards& shards) {
  std::set<std::string> names;
  for (const SafetensorsPlan& plan : shards.plans) {
    for (const TensorInfo& tensor : plan.header.tensors) names.insert(tensor.name);
  }
  return names;
}

TEST_CASE("parts have every tensor once, and about the same size") {
  const Opened opened;
  const OutputShards whole = Value(PlanOutputShards(*opened.checkpoint, *opened.plan));
  for (const uint32_t count : {2U, 3U, 5U, 40U}) {
    std::set<std::string> names;
    size_t units = 0;
    size_t empty = 0;
    for (uint32_t index = 1; index <= count; ++index) {
      const OutputShards part = Value(
          PlanOutputShards(*opened.checkpoint, *opened.plan, kDefaultShardBytes, {index, count}));
      for (const std::string& name : NamesOf(part)) CHECK(names.insert(name).second);
      units += part.units.size();
      if (part.units.empty()) {
        CHECK(part.names.empty());
        ++empty;
      }
      // The largest unit is the embedding; no part is more than that above its share.
      CHECK(part.file_bytes <= whole.file_bytes / count + 512 * 384 * 2 + 4096);
    }
    CHECK(names == NamesOf(whole));
    CHECK(units == whole.units.size());
    CHECK((empty > 0) == (count == 40));  // there are only 11 units
  }
}

// Two experts of N = 4, K = 16, stacked in one tensor.
TestCheckpoint StackedExperts() {
  TestCheckpoint checkpoint;
  checkpoint.config = ExampleConfig(true);
  const std::string module = "model.layers.0.mlp.experts.up_proj";
  checkpoint.tensors = {
      {module + ".weight_packed", "I32", {2, 4, 2}, std::vector<std::byte>(64, std::byte{0x12})},
      {module + ".weight_scale", "BF16", {2, 4, 2}, std::vector<std::byte>(32, std::byte{0x3C})},
      {module + ".weight_shape", "I64", {3}, Int64s({2, 4, 16})}};
  return checkpoint;
}

TEST_CASE("stacked experts are packed together or kept together") {
  const TempFolder folder;
  StackedExperts().Write(folder.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  REQUIRE(checkpoint.ok());
  const Result<QuantizedModel> model = ReadQuantizedModel(*checkpoint);
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  Result<Plan> plan = MakePlan(*checkpoint, *model, {.target = "zentorch"});
  REQUIRE(plan.ok());
  REQUIRE(plan->modules.size() == 2);
  const Result<OutputShards> both = PlanOutputShards(*checkpoint, *plan);
  REQUIRE(both.ok());
  CHECK(CountPacked(*both) == 2);
  CHECK(both->units.size() == 2);

  plan->modules[1].chosen = nullptr;
  const Status status = PlanOutputShards(*checkpoint, *plan).status();
  REQUIRE_FALSE(status.ok());
  CHECK(status.kind() == ErrorKind::kUnsupported);
  CHECK_THAT(status.ToString(),
             Catch::Contains(std::string(plan->modules[1].linear->module())) &&
                 Catch::Contains("weight_packed also holds modules that are packed"));
}

TEST_CASE("a name that two tensors of the output would have is refused") {
  const TempFolder temp;
  GptqExample example{.n = 32, .k = 32, .group_size = 32};
  example.Randomize(1, 1);
  TestCheckpoint stored = MakeGptq(example);
  stored.tensors.push_back({kGptqModule + ".weight_scale", "BF16", {1}, Hex("80 3f")});
  stored.Write(temp.path());
  const Checkpoint checkpoint = Value(Checkpoint::Open(temp.path()));
  const QuantizedModel model = Value(ReadQuantizedModel(checkpoint));
  const Plan plan = Value(MakePlan(checkpoint, model, {.target = "vllm-cpu"}));
  CheckError(PlanOutputShards(checkpoint, plan).status(), ErrorKind::kMalformed,
             "up_proj.weight_scale: the packed module needs this name");
}

}  // namespace
}  // namespace prepack::testing
