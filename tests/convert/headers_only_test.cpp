// Opening and planning must not depend on how much data a checkpoint has: only headers are read,
// each of them once.

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "container/header_bytes.h"
#include "io_fault.h"
#include "prepack/container/safetensors_writer.h"
#include "prepack/convert/plan.h"
#include "prepack/inspect/inspect.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

constexpr size_t kShards = 20;
constexpr size_t kModulesPerShard = 50;
constexpr uint64_t kChannels = 8192;  // 64 MiB of codes per module: 67 GB in all

std::string ShardName(size_t shard) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, kShards);
}

// Headers, then holes: nothing behind the header takes space, and all of it reads as zero.
void WriteShard(const TempFolder& folder, size_t shard, Json& weight_map) {
  std::vector<TensorInfo> tensors;
  for (size_t i = 0; i < kModulesPerShard; ++i) {
    const std::string module = fmt::format("model.layers.{}.mlp.up_proj", shard * 100 + i);
    tensors.push_back(
        {.name = module + ".weight", .dtype = DType::kI8, .shape = {kChannels, kChannels}});
    tensors.push_back(
        {.name = module + ".weight_scale", .dtype = DType::kBF16, .shape = {kChannels, 1}});
  }
  const Result<SafetensorsPlan> plan = PlanSafetensors(std::move(tensors), {});
  REQUIRE(plan.ok());
  for (const TensorInfo& tensor : plan->header.tensors) weight_map[tensor.name] = ShardName(shard);
  std::ofstream(folder / ShardName(shard), std::ios::binary) << HeaderBytes(*plan);
  std::filesystem::resize_file(folder / ShardName(shard), plan->file_bytes);
}

void WriteCheckpoint(const TempFolder& folder) {
  const Json weights = {
      {"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "channel"}};
  const Json activations = {{"num_bits", 8},
                            {"type", "int"},
                            {"symmetric", true},
                            {"dynamic", true},
                            {"strategy", "token"}};
  const Json group = {
      {"targets", {"Linear"}}, {"weights", weights}, {"input_activations", activations}};
  const Json config = {{"quantization_config",
                        {{"quant_method", "compressed-tensors"},
                         {"format", "int-quantized"},
                         {"config_groups", {{"group_0", group}}}}}};
  std::ofstream(folder / "config.json") << config.dump();
  Json weight_map = Json::object();
  for (size_t shard = 0; shard < kShards; ++shard) WriteShard(folder, shard, weight_map);
  std::ofstream(folder / "model.safetensors.index.json")
      << Json{{"metadata", Json::object()}, {"weight_map", weight_map}}.dump();
}

// The length and the JSON of every header, config.json and the index; nothing is mapped.
void CheckCalls(const CallCounter& calls) {
  CHECK(calls.Of(posix::Call::kOpen) == kShards + 2);
  CHECK(calls.Of(posix::Call::kRead) == 2 * kShards + 2);
  CHECK(calls.Of(posix::Call::kMap) == 0);
}

TEST_CASE("a checkpoint of 20 files and 2000 tensors is planned from its headers alone") {
  const TempFolder folder;
  WriteCheckpoint(folder);
  const CallCounter calls;
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  REQUIRE(checkpoint.ok());
  CHECK(checkpoint->tensors().size() == 2000);
  const Result<QuantizedModel> model = ReadQuantizedModel(*checkpoint);
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  const Result<Plan> plan = MakePlan(*checkpoint, *model, {.target = "vllm-cpu"});
  REQUIRE(plan.ok());
  CHECK(plan->PackedModules() == kShards * kModulesPerShard);
  CHECK(plan->choices.size() == 1);
  CheckCalls(calls);
}

TEST_CASE("a checkpoint of 20 files and 2000 tensors is inspected from its headers alone") {
  const TempFolder folder;
  WriteCheckpoint(folder);
  const CallCounter calls;
  const Result<InspectReport> report = Inspect(folder.path());
  REQUIRE(report.ok());
  CHECK(report->modules.size() == kShards * kModulesPerShard);
  CheckCalls(calls);
}

}  // namespace
}  // namespace prepack::testing
