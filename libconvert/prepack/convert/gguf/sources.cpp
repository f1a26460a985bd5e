#include "prepack/convert/gguf/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "prepack/base/text.h"
#include "prepack/convert/gguf/pack_blocks.h"

namespace prepack::gguf {
namespace {

// The smallest first. Types with a minimum round it, so that --exact takes the next larger one.
constexpr std::array kTypesOfCodes = {GgmlType::kQ4_0, GgmlType::kQ4_1, GgmlType::kQ5_0,
                                      GgmlType::kQ5_1, GgmlType::kQ8_0, GgmlType::kMXFP4,
                                      GgmlType::kNVFP4};

bool RoundsMinima(GgmlType type) {
  return type == GgmlType::kQ4_1 || type == GgmlType::kQ5_1;
}

// What one would have expected to hold the codes, for the reason.
GgmlType NearestType(const Scheme& scheme) {
  if (scheme.code == CodeType::kF4E2M1) {
    return scheme.group_size == 16 ? GgmlType::kNVFP4 : GgmlType::kMXFP4;
  }
  return scheme.bits <= 4 ? GgmlType::kQ4_0 : GgmlType::kQ8_0;
}

std::string WhyNone(const QuantizedLinear& linear) {
  const Scheme& scheme = linear.scheme();
  if (linear.reordered()) {
    return "the module has activation order: its groups are not contiguous, and blocks of ggml are";
  }
  if (scheme.code == CodeType::kF8E4M3) return "ggml has no type for FP8";
  return WhyNotHeld(NearestType(scheme), scheme, linear.k());
}

// "EXPERTS.gate_up_proj.3" is expert 3 of the stack "EXPERTS.gate_up_proj", if its tensors are not
// its own.
std::optional<std::pair<std::string, uint64_t>> PlaceInStack(const QuantizedLinear& linear) {
  const std::string& module = linear.module();
  const size_t dot = module.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  const std::optional<uint64_t> expert = ParseUint(module.substr(dot + 1));
  const bool is_own = std::ranges::any_of(linear.source_tensors(), [&](std::string_view tensor) {
    return tensor.starts_with(module) && tensor.substr(module.size()).starts_with('.');
  });
  if (!expert || is_own) return std::nullopt;
  return std::pair(module.substr(0, dot), *expert);
}

// The tensor of a module as an unquantized model names it. Quantizers that take experts out of
// stacks call their projections by what they do, where the models of this kind number them.
std::string PlainName(const std::string& module) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kProjections = {
      {{".gate_proj", ".w1"}, {".down_proj", ".w2"}, {".up_proj", ".w3"}}};
  const bool is_expert = module.find(".block_sparse_moe.experts.") != std::string::npos;
  for (const auto& [called, numbered] : kProjections) {
    if (!is_expert || !module.ends_with(called)) continue;
    return fmt::format("{}{}.weight", module.substr(0, module.size() - called.size()), numbered);
  }
  return module + ".weight";
}

// Of key and value caches, which llama.cpp quantizes by options of its own.
bool IsCacheScale(std::string_view name) {
  constexpr std::array<std::string_view, 6> kEndings = {
      ".k_scale", ".v_scale", ".kv_scale", ".q_scale", ".output_scale", ".prob_output_scale"};
  return std::ranges::any_of(kEndings, [&](std::string_view end) { return name.ends_with(end); });
}

class SourceFinder {
 public:
  SourceFinder(const Checkpoint& checkpoint, const QuantizedModel& model,
               const PlanOptions& options)
      : checkpoint_(checkpoint), model_(model), options_(options) {}

  Result<Sources> Find() {
    const bool keeps_stacks = !ClassWithStacks(checkpoint_.config(), true).empty();
    if (keeps_stacks) {
      for (const auto& linear : model_.modules) found_.split.all.push_back(linear.get());
    } else {
      PREPACK_TRY_ASSIGN(found_.split, SplitExperts(checkpoint_.config(), model_));
    }
    for (const QuantizedLinear* linear : found_.split.all) PREPACK_TRY(AddModule(*linear));
    AddPlain();
    PREPACK_TRY(CheckHeld());
    return std::move(found_);
  }

 private:
  Status AddModule(const QuantizedLinear& linear) {
    std::string why;
    std::vector<GgmlType> types = TypesThatHold(linear, options_.exact, why);
    if (types.empty()) found_.not_held.push_back({linear.module(), why});
    if (const auto place = PlaceInStack(linear)) {
      return AddExpert(linear, place->first, place->second, std::move(types));
    }
    found_.sources.push_back(
        {.name = PlainName(linear.module()), .modules = {&linear}, .types = std::move(types)});
    return {};
  }

  // Experts come in the order of their names: 0, 1, 10, 11, 2 …
  Status AddExpert(const QuantizedLinear& linear, const std::string& stack, uint64_t expert,
                   std::vector<GgmlType> types) {
    const auto [it, is_new] = stacks_.try_emplace(stack, found_.sources.size());
    if (is_new) {
      found_.sources.push_back({.name = stack, .transposed = true, .types = types});
    }
    Source& source = found_.sources[it->second];
    if (expert >= model_.modules.size()) {
      return Malformed(fmt::format("module {}", linear.module()), "no expert can have this number");
    }
    if (source.modules.size() <= expert) source.modules.resize(expert + 1);
    source.modules[expert] = &linear;
    std::erase_if(source.types,
                  [&](GgmlType type) { return std::ranges::count(types, type) == 0; });
    return {};
  }

  void AddPlain() {
    std::set<std::string_view> replaced;
    for (const auto& linear : model_.modules) {
      for (const std::string_view name : linear->source_tensors()) replaced.insert(name);
    }
    for (const StoredTensor& tensor : checkpoint_.tensors()) {
      if (replaced.contains(tensor.name)) continue;
      if (IsCacheScale(tensor.name)) {
        found_.left_out.push_back(tensor.name);
      } else {
        found_.sources.push_back({.name = tensor.name, .plain = &tensor});
      }
    }
  }

  Status CheckHeld() const {
    for (const Source& source : found_.sources) {
      const auto hole = std::ranges::find(source.modules, nullptr);
      if (hole == source.modules.end()) continue;
      return Malformed(fmt::format("module {}.{}", source.name, hole - source.modules.begin()),
                       "the expert is missing");
    }
    if (found_.not_held.empty() || options_.dequantize) return {};
    const NotHeld& first = found_.not_held.front();
    Status status = Unsupported(fmt::format("module {}", first.module), first.why);
    if (found_.not_held.size() > 1) {
      status = std::move(status).Found(
          fmt::format("{} modules that no type of ggml holds", found_.not_held.size()));
    }
    return std::move(status).Hint(
        "--fallback dequantize stores them as floats: BF16, or F32 with --exact");
  }

  const Checkpoint& checkpoint_;
  const QuantizedModel& model_;
  const PlanOptions& options_;
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

std::vector<GgmlType> TypesThatHold(const QuantizedLinear& linear, bool exact, std::string& why) {
  std::vector<GgmlType> types;
  if (!linear.reordered()) {
    for (const GgmlType type : kTypesOfCodes) {
      if (exact && RoundsMinima(type)) continue;
      if (WhyNotHeld(type, linear.scheme(), linear.k()).empty()) types.push_back(type);
    }
  }
  if (types.empty()) why = WhyNone(linear);
  return types;
}

Result<Sources> FindSources(const Checkpoint& checkpoint, const QuantizedModel& model,
                            const PlanOptions& options) {
  return SourceFinder(checkpoint, model, options).Find();
}

}  // namespace prepack::gguf
