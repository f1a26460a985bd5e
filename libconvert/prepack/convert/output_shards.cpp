// Which modules and tensors the output has, and in which shard each lies. Decided from headers
// alone, so that shards can be created at full size and a clash of names is noticed before anything
// is packed.

#include "prepack/convert/output_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "prepack/base/hash.h"
#include "prepack/base/status.h"
#include "prepack/packed/output_hash.h"
#include "prepack/packed/small_parts.h"
#include "prepack/packed/source_identity.h"

namespace prepack {
namespace {

// A packed module or a copied tensor, with the place in the source that it starts at.
struct Unit {
  std::pair<size_t, uint64_t> place;  // file, offset
  const ModulePlan* module = nullptr;
  size_t module_index = 0;
  const StoredTensor* tensor = nullptr;
};

// By number: whether packed modules replace the tensor.
std::vector<bool> ReplacedTensors(const Checkpoint& checkpoint, const Plan& plan) {
  std::vector<bool> replaced(checkpoint.tensors().size());
  for (const ModulePlan& module : plan.modules) {
    if (module.chosen == nullptr) continue;
    for (const StoredTensor* tensor : module.ReplacedTensors(checkpoint)) {
      replaced[NumberOf(checkpoint, *tensor)] = true;
    }
  }
  return replaced;
}

// Experts that are stacked share their tensors: they are packed together, or kept together.
Status CheckKeptAreWhole(const Checkpoint& checkpoint, const Plan& plan,
                         const std::vector<bool>& replaced) {
  for (const ModulePlan& module : plan.modules) {
    if (module.chosen != nullptr) continue;
    for (const std::string_view name : module.linear->source_tensors()) {
      const StoredTensor* tensor = checkpoint.Find(name);
      if (tensor == nullptr || !replaced[NumberOf(checkpoint, *tensor)]) continue;
      return Unsupported(fmt::format("module {}", module.linear->module()),
                         fmt::format("it cannot stay as stored, because its tensor {} also holds "
                                     "modules that are packed",
                                     name))
          .Hint(
              "--fallback dequantize also packs this module, as does a --scheme that suits all of "
              "them");
    }
  }
  return {};
}

std::vector<Unit> UnitsInSourceOrder(const Checkpoint& checkpoint, const Plan& plan,
                                     const std::vector<bool>& replaced) {
  std::vector<Unit> units;
  for (size_t i = 0; i < plan.modules.size(); ++i) {
    const ModulePlan& module = plan.modules[i];
    if (module.chosen == nullptr) continue;
    Unit unit{.place = {SIZE_MAX, UINT64_MAX}, .module = &module, .module_index = i};
    for (const StoredTensor* tensor : module.ReplacedTensors(checkpoint)) {
      unit.place = std::min(unit.place, {tensor->file, tensor->offset});
    }
    units.push_back(unit);
  }
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    if (replaced[NumberOf(checkpoint, tensor)]) continue;
    units.push_back({.place = {tensor.file, tensor.offset}, .tensor = &tensor});
  }
  // Stable, because empty tensors share an offset: these stay in the order of their names.
  std::ranges::stable_sort(units, {}, &Unit::place);
  return units;
}

std::vector<TensorInfo> TensorsOf(const Unit& unit) {
  std::vector<TensorInfo> tensors;
  if (unit.tensor != nullptr) {
    tensors.push_back({.name = std::string(unit.tensor->name),
                       .dtype = unit.tensor->dtype,
                       .shape = unit.tensor->shape});
    return tensors;
  }
  for (const PartSpec& part : unit.module->parts) {
    tensors.push_back({.name = unit.module->chosen->TensorName(unit.module->linear->module(), part),
                       .dtype = part.dtype,
                       .shape = part.shape});
  }
  return tensors;
}

// The bytes of all output tensors of the unit.
uint64_t BytesOf(const Unit& unit) {
  return unit.tensor != nullptr ? unit.tensor->bytes : unit.module->packed_bytes;
}

size_t CountTensors(std::span<const Unit> units) {
  size_t count = 0;
  for (const Unit& unit : units) count += unit.tensor != nullptr ? 1 : unit.module->parts.size();
  return count;
}

// Names that no other tensor may have: those of the unit's tensors, and those that loaders would
// take for the same parts of the fused members and put into the fused module.
std::vector<std::string> NamesOf(const Unit& unit) {
  std::vector<std::string> names;
  for (TensorInfo& tensor : TensorsOf(unit)) names.push_back(std::move(tensor.name));
  if (unit.tensor != nullptr) return names;
  for (const QuantizedLinear* member : unit.module->linear->members()) {
    for (const PartSpec& part : unit.module->parts) {
      names.push_back(unit.module->chosen->TensorName(member->module(), part));
    }
  }
  return names;
}

// The names of all tensors must differ, including those in other parts. Their hashes take a tenth
// of the memory.
Status CheckNames(const std::vector<Unit>& units) {
  std::vector<Hash128> names;
  names.reserve(CountTensors(units));
  for (const Unit& unit : units) {
    for (const std::string& name : NamesOf(unit)) names.push_back(Xxh3(name));
  }
  std::ranges::sort(names);
  const auto twin = std::ranges::adjacent_find(names);
  if (twin == names.end()) return {};
  std::string name;
  for (const Unit& unit : units) {
    for (const std::string& other : NamesOf(unit)) {
      if (Xxh3(other) == *twin) name = other;
    }
  }
  return Malformed(fmt::format("tensor {}", name),
                   "the packed module needs this name, but another tensor has it")
      .Hint(
          "Is the folder a mixture of two checkpoints? Remove the tensor, or save the model again");
}

std::vector<Unit> UnitsOfPart(const std::vector<Unit>& units, const Part& part) {
  std::vector<Unit> mine;
  uint64_t total = 0;
  for (const Unit& unit : units) total += BytesOf(unit);
  uint64_t start = 0;
  for (const Unit& unit : units) {
    const uint64_t bytes = BytesOf(unit);
    if (PartOf(start, bytes, total, part.count) == part.index) mine.push_back(unit);
    start += bytes;
  }
  return mine;
}

// The units of the first shard: as many as it takes to fill it.
std::span<const Unit> TakeShard(std::span<const Unit> units, uint64_t shard_bytes) {
  size_t count = 0;
  for (uint64_t bytes = 0; count < units.size() && bytes < shard_bytes; ++count) {
    bytes += BytesOf(units[count]);
  }
  return units.first(count);
}

std::vector<TensorInfo> TensorsOfShard(std::span<const Unit> units) {
  std::vector<TensorInfo> tensors;
  tensors.reserve(CountTensors(units));  // exactly: they stay until everything is written
  for (const Unit& unit : units) {
    for (TensorInfo& tensor : TensorsOf(unit)) tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// The tensors of every shard. There is one shard at least.
std::vector<std::vector<TensorInfo>> DivideIntoShards(std::span<const Unit> units,
                                                      uint64_t shard_bytes) {
  std::vector<std::vector<TensorInfo>> shards;
  do {
    const std::span<const Unit> shard = TakeShard(units, std::max<uint64_t>(1, shard_bytes));
    shards.push_back(TensorsOfShard(shard));
    units = units.subspan(shard.size());
  } while (!units.empty());
  return shards;
}

// Finds slots by name, once PlanSafetensors has put the tensors of every shard in their order.
class SlotFinder {
 public:
  explicit SlotFinder(const std::vector<SafetensorsPlan>& plans) {
    for (size_t shard = 0; shard < plans.size(); ++shard) {
      const std::vector<TensorInfo>& tensors = plans[shard].header.tensors;
      for (size_t index = 0; index < tensors.size(); ++index) {
        slots_.emplace_back(tensors[index].name,
                            OutputSlot{static_cast<uint32_t>(shard), static_cast<uint32_t>(index)});
      }
    }
    std::ranges::sort(slots_, {}, &NamedSlot::first);
  }
  // The tensor must be there.
  OutputSlot Find(std::string_view name) const {
    return std::ranges::lower_bound(slots_, name, {}, &NamedSlot::first)->second;
  }

 private:
  using NamedSlot = std::pair<std::string_view, OutputSlot>;
  std::vector<NamedSlot> slots_;
};

// Adds the slots, once the shards are planned.
void AddUnits(const std::vector<Unit>& units, OutputShards& output) {
  size_t tensors = 0;
  for (const SafetensorsPlan& plan : output.plans) tensors += plan.header.tensors.size();
  output.units.reserve(units.size());
  output.slots.reserve(tensors);  // so that they never move
  const SlotFinder finder(output.plans);
  for (const Unit& unit : units) {
    const size_t first = output.slots.size();
    for (const TensorInfo& tensor : TensorsOf(unit)) {
      output.slots.push_back(finder.Find(tensor.name));
    }
    output.units.push_back({.module = unit.module_index,
                            .copied = unit.tensor,
                            .slots = std::span(output.slots).subspan(first)});
  }
}

}  // namespace

std::string ShardName(size_t shard, size_t count) {
  if (count == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, count);
}

Result<OutputShards> PlanOutputShards(const Checkpoint& checkpoint, const Plan& plan,
                                      uint64_t shard_bytes, const Part& part) {
  const std::vector<bool> replaced = ReplacedTensors(checkpoint, plan);
  PREPACK_TRY(CheckKeptAreWhole(checkpoint, plan, replaced));
  std::vector<Unit> units = UnitsInSourceOrder(checkpoint, plan, replaced);
  PREPACK_TRY(CheckNames(units));
  if (!part.IsWhole()) units = UnitsOfPart(units, part);
  std::vector<std::vector<TensorInfo>> shards = DivideIntoShards(units, shard_bytes);
  if (units.empty() && !part.IsWhole()) shards.clear();

  OutputShards output;
  for (size_t i = 0; i < shards.size(); ++i) {
    PREPACK_TRY_ASSIGN(SafetensorsPlan shard,
                       PlanSafetensors(std::move(shards[i]), ShardMetadata()));
    output.file_bytes += shard.file_bytes;
    output.plans.push_back(std::move(shard));
    output.names.push_back(ShardName(i, shards.size()));
  }

  AddUnits(units, output);
  return output;
}

std::vector<const StoredTensor*> SourcesOf(const Checkpoint& checkpoint, const Plan& plan,
                                           const OutputUnit& unit) {
  if (unit.copied != nullptr) return {unit.copied};
  return plan.modules[unit.module].ReplacedTensors(checkpoint);
}

std::vector<size_t> UnitsInTurns(const OutputShards& shards) {
  std::vector<std::vector<size_t>> of_shards(shards.names.size());
  for (size_t unit = 0; unit < shards.units.size(); ++unit) {
    of_shards[shards.units[unit].slots.front().shard].push_back(unit);
  }
  std::vector<size_t> order;
  order.reserve(shards.units.size());
  for (size_t first = 0; first < of_shards.size(); first += kShardsAtOnce) {
    const std::span together =
        std::span(of_shards).subspan(first, std::min(kShardsAtOnce, of_shards.size() - first));
    const size_t most = std::ranges::max(together, {}, &std::vector<size_t>::size).size();
    for (size_t turn = 0; turn < most; ++turn) {
      for (const std::vector<size_t>& units : together) {
        if (turn < units.size()) order.push_back(units[turn]);
      }
    }
  }
  return order;
}

}  // namespace prepack
