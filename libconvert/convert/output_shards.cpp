#include "convert/output_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace prepack {
namespace {

// A packed module or a copied tensor, with the place in the source that it starts at.
struct Unit {
  std::pair<size_t, uint64_t> place;  // file, offset
  const ModulePlan* module = nullptr;
  size_t module_index = 0;
  const StoredTensor* tensor = nullptr;
};

// What packed modules replace.
std::set<std::string> ReplacedTensors(const Plan& plan) {
  std::set<std::string> replaced;
  for (const ModulePlan& module : plan.modules) {
    if (module.chosen == nullptr) continue;
    for (std::string& name : module.ReplacedTensors()) replaced.insert(std::move(name));
  }
  return replaced;
}

// Experts that are stacked share their tensors: they are packed together, or kept together.
Status CheckKeptAreWhole(const Plan& plan, const std::set<std::string>& replaced) {
  for (const ModulePlan& module : plan.modules) {
    if (module.chosen != nullptr) continue;
    for (const std::string& tensor : module.linear->source_tensors()) {
      if (!replaced.contains(tensor)) continue;
      return Unsupported(fmt::format("module {}", module.linear->module()),
                         fmt::format("it cannot stay as stored, because its tensor {} holds "
                                     "modules that are packed, too",
                                     tensor))
          .Hint(
              "--fallback dequantize packs it, too; a --scheme that fits all of them does as well");
    }
  }
  return {};
}

std::vector<Unit> UnitsInSourceOrder(const Checkpoint& checkpoint, const Plan& plan,
                                     const std::set<std::string>& replaced) {
  std::vector<Unit> units;
  for (size_t i = 0; i < plan.modules.size(); ++i) {
    const ModulePlan& module = plan.modules[i];
    if (module.chosen == nullptr) continue;
    Unit unit{.place = {SIZE_MAX, UINT64_MAX}, .module = &module, .module_index = i};
    for (const std::string& name : module.ReplacedTensors()) {
      const StoredTensor* tensor = checkpoint.Find(name);
      if (tensor != nullptr) unit.place = std::min(unit.place, {tensor->file, tensor->offset});
    }
    units.push_back(unit);
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (replaced.contains(name)) continue;
    units.push_back({.place = {tensor.file, tensor.offset}, .tensor = &tensor});
  }
  // Stable, because empty tensors share an offset: these stay in the order of their names.
  std::ranges::stable_sort(units, {}, &Unit::place);
  return units;
}

std::vector<TensorInfo> TensorsOf(const Unit& unit) {
  std::vector<TensorInfo> tensors;
  if (unit.tensor != nullptr) {
    tensors.push_back(
        {.name = unit.tensor->name, .dtype = unit.tensor->dtype, .shape = unit.tensor->shape});
    return tensors;
  }
  for (const PartSpec& part : unit.module->parts) {
    tensors.push_back({.name = fmt::format("{}.{}", unit.module->linear->module(), part.name),
                       .dtype = part.dtype,
                       .shape = part.shape});
  }
  return tensors;
}

uint64_t BytesOf(const std::vector<TensorInfo>& tensors) {
  uint64_t bytes = 0;
  for (const TensorInfo& tensor : tensors) {
    bytes += TensorBytes(tensor.dtype, tensor.shape).value_or(0);
  }
  return bytes;
}

uint64_t BytesOf(const std::vector<Unit>& units) {
  uint64_t bytes = 0;
  for (const Unit& unit : units) bytes += BytesOf(TensorsOf(unit));
  return bytes;
}

Status AddNames(const std::vector<TensorInfo>& tensors, std::set<std::string>& names) {
  for (const TensorInfo& tensor : tensors) {
    if (names.insert(tensor.name).second) continue;
    return Malformed(fmt::format("tensor {}", tensor.name),
                     "the packed module needs this name, but another tensor has it");
  }
  return {};
}

// Names → slots, once PlanSafetensors has put the tensors of every shard in their order.
std::unordered_map<std::string, OutputSlot> SlotsByName(const std::vector<SafetensorsPlan>& plans) {
  std::unordered_map<std::string, OutputSlot> slots;
  for (size_t shard = 0; shard < plans.size(); ++shard) {
    const std::vector<TensorInfo>& tensors = plans[shard].header.tensors;
    for (size_t index = 0; index < tensors.size(); ++index) {
      slots.emplace(tensors[index].name, OutputSlot{shard, index});
    }
  }
  return slots;
}

}  // namespace

std::string ShardName(size_t shard, size_t count) {
  if (count == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, count);
}

Result<OutputShards> PlanOutputShards(const Checkpoint& checkpoint, const Plan& plan,
                                      uint64_t shard_bytes, const Part& part) {
  const std::set<std::string> replaced = ReplacedTensors(plan);
  if (Status status = CheckKeptAreWhole(plan, replaced); !status.ok()) return status;
  const std::vector<Unit> units = UnitsInSourceOrder(checkpoint, plan, replaced);

  const uint64_t total = BytesOf(units);
  std::vector<std::vector<TensorInfo>> shards;
  if (part.IsWhole()) shards.emplace_back();  // there even when it is empty
  std::set<std::string> names;
  std::vector<Unit> mine;
  uint64_t start = 0;
  uint64_t bytes_in_shard = 0;
  for (const Unit& unit : units) {
    std::vector<TensorInfo> tensors = TensorsOf(unit);
    if (Status status = AddNames(tensors, names); !status.ok()) return status;
    const uint64_t bytes = BytesOf(tensors);
    const bool is_mine = PartOf(start, bytes, total, part.count) == part.index;
    start += bytes;
    if (!is_mine) continue;
    if (shards.empty() || bytes_in_shard >= shard_bytes) {
      shards.emplace_back();
      bytes_in_shard = 0;
    }
    bytes_in_shard += bytes;
    std::ranges::move(tensors, std::back_inserter(shards.back()));
    mine.push_back(unit);
  }

  OutputShards output;
  for (size_t i = 0; i < shards.size(); ++i) {
    Result<SafetensorsPlan> shard = PlanSafetensors(std::move(shards[i]), {{"format", "pt"}});
    if (!shard.ok()) return shard.status();
    output.file_bytes += shard->file_bytes;
    output.plans.push_back(*std::move(shard));
    output.names.push_back(ShardName(i, shards.size()));
  }

  const std::unordered_map<std::string, OutputSlot> slots = SlotsByName(output.plans);
  for (const Unit& unit : mine) {
    OutputUnit& written =
        output.units.emplace_back(OutputUnit{unit.module_index, unit.tensor, /*slots=*/{}});
    for (const TensorInfo& tensor : TensorsOf(unit)) written.slots.push_back(slots.at(tensor.name));
  }
  return output;
}

}  // namespace prepack
