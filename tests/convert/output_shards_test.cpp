#include "convert/output_shards.h"

#include <set>

#include "catch.h"
#include "temp_folder.h"

namespace prepack {
namespace {

using testing::Fixture;

struct Opened {
  Result<Checkpoint> checkpoint = Checkpoint::Open(Fixture("checkpoints/ct-w4a16-g32-asym"));
  Result<QuantizedModel> model = ReadQuantizedModel(*checkpoint);
  Result<Plan> plan = MakePlan(*checkpoint, *model, {.target = "zentorch", .activation_dtype = {}});
};

TEST_CASE("a small model goes into one file") {
  const Opened opened;
  const Result<OutputShards> shards = PlanOutputShards(*opened.checkpoint, *opened.plan);
  REQUIRE(shards.ok());
  CHECK(shards->names == std::vector<std::string>{"model.safetensors"});
  CHECK(shards->packed.size() == 7);
  CHECK(shards->copied.size() == 4);  // embedding and three norms
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
  for (const PackedModuleOutput& packed : shards->packed) {
    const ModulePlan& module = opened.plan->modules[packed.module];
    REQUIRE(packed.slots.size() == module.parts.size());
    for (size_t i = 0; i < packed.slots.size(); ++i) {
      CHECK(name_at(packed.slots[i]) ==
            module.linear->module() + "." + std::string(module.parts[i].name));
      CHECK(packed.slots[i].shard == packed.slots[0].shard);  // a module is not torn apart
    }
  }
  for (const CopiedTensorOutput& copied : shards->copied) {
    CHECK(name_at(copied.slot) == copied.source->name);
  }
}

}  // namespace
}  // namespace prepack
