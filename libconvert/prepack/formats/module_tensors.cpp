#include "prepack/formats/module_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "prepack/formats/finding.h"
#include "prepack/formats/model_parts.h"
#include "prepack/model/module_name.h"

namespace prepack {

const StoredTensor* ModuleTensors::Find(std::string_view suffix) const {
  const auto it =
      std::ranges::lower_bound(tensors, suffix, {}, [](const auto& t) { return t.first; });
  return it != tensors.end() && it->first == suffix ? it->second : nullptr;
}

namespace {

// "" where the name is nothing but a suffix.
std::string_view ModuleOfTensor(const NamedTensor& named) {
  const std::string_view full = named.second->name;
  const size_t length = full.size() - named.first.size();
  return full.substr(0, length == 0 ? 0 : length - 1);
}

}  // namespace

GroupedTensors GroupByModule(const Checkpoint& checkpoint) {
  GroupedTensors grouped;
  std::vector<NamedTensor>& tensors = grouped.tensors;
  tensors.reserve(checkpoint.tensors().size());
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    tensors.emplace_back(tensor.name.substr(tensor.name.rfind('.') + 1), &tensor);
  }
  // "a.b.weight" and "a.b.weight_scale" can have "a.b.weight.x" between.
  if (!std::ranges::is_sorted(tensors, {}, ModuleOfTensor)) {
    std::ranges::stable_sort(tensors, {}, ModuleOfTensor);
  }
  for (auto begin = tensors.begin(); begin != tensors.end();) {
    const std::string_view name = ModuleOfTensor(*begin);
    const auto end = std::find_if(begin, tensors.end(), [&](const NamedTensor& other) {
      return ModuleOfTensor(other) != name;
    });
    std::sort(begin, end, [](const auto& a, const auto& b) { return a.first < b.first; });
    grouped.modules.push_back({.name = name, .tensors = {begin, end}});
    begin = end;
  }
  return grouped;
}

bool IsOutputHead(std::string_view module) {
  return module == "lm_head" || module.ends_with(".lm_head");
}

std::string ShowShape(std::span<const uint64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Status RequireDType(const Checkpoint& checkpoint, const StoredTensor& tensor, std::string_view what,
                    std::initializer_list<DType> allowed) {
  if (std::ranges::find(allowed, tensor.dtype) != allowed.end()) return {};
  std::vector<std::string_view> names;
  for (const DType dtype : allowed) names.push_back(DTypeName(dtype));
  return Malformed(checkpoint.Where(tensor), fmt::format("{} have the wrong dtype", what))
      .Found(DTypeName(tensor.dtype))
      .Expected(fmt::format("{}", fmt::join(names, " or ")))
      .Id(FindingId("tensor-dtype"));
}

Status RequireShape(const Checkpoint& checkpoint, const StoredTensor& tensor,
                    std::span<const uint64_t> expected, std::string_view why) {
  if (std::ranges::equal(tensor.shape, expected)) return {};
  return Malformed(checkpoint.Where(tensor), "the tensor has the wrong shape")
      .Found(ShowShape(tensor.shape))
      .Expected(fmt::format("{}: {}", ShowShape(expected), why))
      .Id(FindingId("tensor-shape"));
}

namespace {

// "model.layers" of model.layers.3.mlp.up_proj; empty for what lies in no list.
std::string_view ListOf(std::string_view module) {
  const auto layer = ParseLayerName(module);
  return layer ? layer->list : std::string_view();
}

}  // namespace

void PlainModules::Report(const QuantizedModel& model, FindingTally& findings) const {
  if (modules_.empty()) return;
  std::set<std::string_view> quantized;
  for (const auto& linear : model.modules) {
    if (!IsOutputHead(linear->module())) quantized.insert(ListOf(linear->module()));
  }
  // Layers that could not be read are quantized, too, but then the model has an error.
  for (const auto& [module, message] : modules_) {
    if (quantized.contains(ListOf(module))) {
      findings.Add("module-targeted-but-plain", module, message);
    }
  }
}

Status RequireModules(const QuantizedModel& model, std::string_view where,
                      std::string_view expected, std::string_view weights) {
  if (!model.modules.empty() || !model.errors.empty()) return {};
  return Malformed(where,
                   fmt::format("the config declares {} weights, but no tensor is one", weights))
      .Expected(expected)
      .Hint("The config may belong to another checkpoint, or shards are missing")
      .Id(FindingId("nothing-quantized"));
}

}  // namespace prepack
