#include "prepack/convert/gguf/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "prepack/base/text.h"

namespace prepack::gguf {
namespace {

// "EXPERTS.gate_up_proj.3" is expert 3 of the stack "EXPERTS.gate_up_proj", if its tensors are not
// its own.
std::optional<std::pair<std::string, uint64_t>> PlaceInStack(const QuantizedLinear& linear) {
  const std::string_view module = linear.module();
  const size_t dot = module.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::optional<uint64_t> expert = ParseUint(module.substr(dot + 1));
  const bool is_own = std::ranges::any_of(linear.source_tensors(), [&](std::string_view tensor) {
    return tensor.starts_with(module) && tensor.substr(module.size()).starts_with('.');
  });
  if (!expert || is_own) return std::nullopt;
  return std::pair(std::string(module.substr(0, dot)), *expert);
}

// The tensor of a module as an unquantized model names it. Quantizers that take experts out of
// stacks call their projections by what they do, where the models of this kind number them.
std::string PlainName(std::string_view module) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kProjections = {
      {{".gate_proj", ".w1"}, {".down_proj", ".w2"}, {".up_proj", ".w3"}}};
  const bool is_expert = module.find(".block_sparse_moe.experts.") != std::string_view::npos;
  for (const auto& [called, numbered] : kProjections) {
    if (!is_expert || !module.ends_with(called)) continue;
    return fmt::format("{}{}.weight", module.substr(0, module.size() - called.size()), numbered);
  }
  return fmt::format("{}.weight", module);
}

// Of key and value caches, which llama.cpp quantizes by options of its own.
bool IsCacheScale(std::string_view name) {
  constexpr std::array<std::string_view, 6> kEndings = {
      ".k_scale", ".v_scale", ".kv_scale", ".q_scale", ".output_scale", ".prob_output_scale"};
  return std::ranges::any_of(kEndings, [&](std::string_view end) { return name.ends_with(end); });
}

class SourceFinder {
 public:
  SourceFinder(const Checkpoint& checkpoint, const QuantizedModel& model)
      : checkpoint_(checkpoint), model_(model) {}

  Result<Sources> Find() {
    const bool keeps_stacks = !ClassWithStacks(checkpoint_.config(), true).empty();
    if (keeps_stacks) {
      for (const auto& linear : model_.modules) found_.split.all.push_back(linear.get());
    } else {
      PREPACK_TRY_ASSIGN(found_.split, SplitExperts(checkpoint_.config(), model_));
    }
    for (const QuantizedLinear* linear : found_.split.all) PREPACK_TRY(AddModule(*linear));
    AddPlain();
    PREPACK_TRY(CheckWhole());
    PREPACK_TRY_ASSIGN(found_.stacks, FindExpertStacks(checkpoint_.config(), found_.sources));
    return std::move(found_);
  }

 private:
  Status AddModule(const QuantizedLinear& linear) {
    if (const auto place = PlaceInStack(linear)) {
      return AddExpert(linear, place->first, place->second);
    }
    found_.sources.push_back({.name = PlainName(linear.module()), .modules = {&linear}});
    return {};
  }

  // Experts come in the order of their names: 0, 1, 10, 11, 2 …
  Status AddExpert(const QuantizedLinear& linear, const std::string& stack, uint64_t expert) {
    const auto [it, is_new] = stacks_.try_emplace(stack, found_.sources.size());
    if (is_new) found_.sources.push_back({.name = stack, .transposed = true});
    Source& source = found_.sources[it->second];
    if (expert >= model_.modules.size()) {
      return Malformed(fmt::format("module {}", linear.module()), "no expert can have this number");
    }
    if (source.modules.size() <= expert) source.modules.resize(expert + 1);
    source.modules[expert] = &linear;
    return {};
  }

  void AddPlain() {
    const std::vector<bool> replaced = TensorsInModules(checkpoint_, model_);
    for (const StoredTensor& tensor : checkpoint_.tensors()) {
      if (replaced[NumberOf(checkpoint_, tensor)]) continue;
      if (IsCacheScale(tensor.name)) {
        found_.left_out.emplace_back(tensor.name);
      } else {
        found_.sources.push_back({.name = std::string(tensor.name), .plain = &tensor});
      }
    }
  }

  Status CheckWhole() const {
    for (const Source& source : found_.sources) {
      const auto hole = std::ranges::find(source.modules, nullptr);
      if (hole == source.modules.end()) continue;
      return Malformed(fmt::format("module {}.{}", source.name, hole - source.modules.begin()),
                       "the expert is missing");
    }
    return {};
  }

  const Checkpoint& checkpoint_;
  const QuantizedModel& model_;
  Sources found_;
  std::map<std::string, size_t> stacks_;
};

}  // namespace

uint64_t Source::rows() const {
  if (plain == nullptr) return modules.size() * rows_of_module();
  uint64_t rows = 1;
  for (size_t i = 0; i + 1 < plain->shape.size(); ++i) rows *= plain->shape[i];
  return rows;
}

uint64_t Source::columns() const {
  if (plain == nullptr) return modules.front()->k();
  return plain->shape.empty() ? 1 : plain->shape[plain->shape.size() - 1];
}

Result<Sources> FindSources(const Checkpoint& checkpoint, const QuantizedModel& model) {
  return SourceFinder(checkpoint, model).Find();
}

}  // namespace prepack::gguf
