// Finds the modules that runtimes run as one, by their names, and puts them together.

#include "prepack/convert/fused_modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "prepack/formats/model_parts.h"
#include "prepack/model/module_name.h"
#include "prepack/model/stacked_linear.h"
#include "prepack/packed/small_parts.h"

namespace prepack {
namespace {

using Members = std::vector<const QuantizedLinear*>;

// "model.layers.0.self_attn." of "model.layers.0.self_attn.q_proj".
std::string_view ParentOf(std::string_view module) {
  return module.substr(0, module.rfind('.') + 1);
}

// The set that a module belongs to, if it has siblings to be fused with.
const SiblingSet* SetOf(std::string_view module) {
  const std::string_view name = module.substr(ParentOf(module).size());
  for (const SiblingSet& set : SiblingSets()) {
    if (!set.fused.empty() && std::ranges::count(set.Names(), name) != 0) return &set;
  }
  return nullptr;
}

// Has the checkpoint tensors under the name that are not those of the members? A packed folder has
// theirs under it.
bool HasOtherTensors(const Checkpoint& checkpoint, const std::string& module,
                     const Members& members) {
  const std::string prefix = module + ".";
  auto tensor = std::ranges::lower_bound(checkpoint.tensors(), prefix, {}, &StoredTensor::name);
  const auto is_below = [&] {
    return tensor != checkpoint.tensors().end() && tensor->name.starts_with(prefix);
  };
  if (!is_below()) return false;
  std::set<const StoredTensor*> own;
  for (const QuantizedLinear* member : members) {
    const std::vector<const StoredTensor*> replaced = ReplacedTensors(checkpoint, *member, true);
    own.insert(replaced.begin(), replaced.end());
  }
  for (; is_below(); ++tensor) {
    if (!own.contains(&*tensor)) return true;
  }
  return false;
}

// Either all members have a bias, in the same dtype, or none has.
std::string WhyBiasesDiffer(const Checkpoint& checkpoint, const Members& members) {
  const std::optional<BiasPlace> first = FindBias(checkpoint, *members.front());
  for (const QuantizedLinear* member : members) {
    const std::optional<BiasPlace> bias = FindBias(checkpoint, *member);
    if (bias.has_value() != first.has_value()) return "only some of the layers have a bias";
    if (bias && bias->tensor->dtype != first->tensor->dtype) {
      return "their biases have different dtypes";
    }
  }
  return "";
}

// Makes one module of the members, or says why not.
Status Fuse(const Checkpoint& checkpoint, const std::string& name, Members members,
            uint64_t experts, bool for_values, FusedModules& fused) {
  std::string why_not = WhyBiasesDiffer(checkpoint, members);
  if (why_not.empty() && HasOtherTensors(checkpoint, name, members)) {
    why_not = "the checkpoint already has tensors with this name";
  }
  if (why_not.empty()) {
    auto whole = Stack(name, std::move(members), experts, for_values);
    if (whole.ok()) {
      fused.modules.push_back(*std::move(whole));
      return {};
    }
    if (whole.status().kind() != ErrorKind::kUnsupported) return whole.status();
    why_not = whole.status().what();
  }
  fused.apart[name] = std::move(why_not);
  return {};
}

// Fuses one set of siblings, or says why not.
Status FuseSet(const Checkpoint& checkpoint, const QuantizedModel& model, const std::string& parent,
               const SiblingSet& set, FusedModules& fused) {
  const std::string name = parent + std::string(set.fused);
  Members members;
  for (const std::string_view sibling : set.Names()) {
    members.push_back(model.Find(fmt::format("{}{}", parent, sibling)));
    if (members.back() != nullptr) continue;
    fused.apart[name] = fmt::format("{} is missing or not quantized", sibling);
    return {};
  }
  return Fuse(checkpoint, name, std::move(members), 0, false, fused);
}

// Modules of an expert that the op reads as one, in its order.
struct ExpertProjections {
  std::string_view whole;
  std::array<std::string_view, 2> names;  // "" is none

  std::span<const std::string_view> Names() const {
    return std::span(names).first(names.back().empty() ? 1 : 2);
  }
};

constexpr std::array<ExpertProjections, 4> kExpertProjections = {{
    {"gate_up_proj", {"gate_proj", "up_proj"}},
    {"down_proj", {"down_proj", ""}},
    {"w13", {"w1", "w3"}},
    {"w2", {"w2", ""}},
}};

// The name of the stack that an expert's module belongs to, and its place among those of the
// expert; nullopt if it belongs to none.
struct PlaceInStack {
  std::string_view whole;
  size_t place = 0;
  size_t of = 1;
};

std::optional<PlaceInStack> PlaceOf(const ExpertName& expert) {
  for (const ExpertProjections& row : kExpertProjections) {
    const std::span<const std::string_view> names = row.Names();
    if (expert.stored_stacked && expert.projection == row.whole) return PlaceInStack{row.whole};
    if (expert.stored_stacked) continue;
    const auto found = std::ranges::find(names, expert.projection);
    if (found == names.end()) continue;
    return PlaceInStack{row.whole, static_cast<size_t>(found - names.begin()), names.size()};
  }
  return std::nullopt;
}

// What there is of a stack.
struct ExpertPieces {
  struct Piece {
    uint64_t expert = 0;
    size_t place = 0;
    const QuantizedLinear* linear = nullptr;
  };

  size_t per_expert = 1;
  std::vector<Piece> pieces;
};

// Empty: all experts are there, with modules of the same shapes. The pieces are in their order.
std::string WhyNoStack(const ExpertPieces& stack) {
  const std::vector<ExpertPieces::Piece>& pieces = stack.pieces;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const uint64_t expert = i / stack.per_expert;
    if (pieces[i].expert != expert || pieces[i].place != i % stack.per_expert) {
      return fmt::format("a module of expert {} is missing or not quantized", expert);
    }
    const QuantizedLinear& first = *pieces[i % stack.per_expert].linear;
    if (pieces[i].linear->n() != first.n()) {
      return fmt::format("expert {} has {} output channels where expert 0 has {}", expert,
                         pieces[i].linear->n(), first.n());
    }
  }
  if (pieces.size() % stack.per_expert != 0) return "a module of the last expert is missing";
  return pieces.size() == stack.per_expert ? "there is one expert only" : "";
}

Status FuseExperts(const Checkpoint& checkpoint, const std::string& name, ExpertPieces stack,
                   bool for_values, FusedModules& fused) {
  std::ranges::sort(stack.pieces, {}, [](const ExpertPieces::Piece& piece) {
    return std::pair(piece.expert, piece.place);
  });
  if (std::string why_not = WhyNoStack(stack); !why_not.empty()) {
    fused.apart[name] = std::move(why_not);
    return {};
  }
  Members members;
  members.reserve(stack.pieces.size());
  for (const ExpertPieces::Piece& piece : stack.pieces) members.push_back(piece.linear);
  const uint64_t experts = members.size() / stack.per_expert;
  return Fuse(checkpoint, name, std::move(members), experts, for_values, fused);
}
}  // namespace

Result<FusedModules> FuseSiblings(const Checkpoint& checkpoint, const QuantizedModel& model,
                                  bool stack_experts, bool siblings, bool for_values) {
  std::map<std::pair<std::string, std::string_view>, const SiblingSet*> sets;
  std::map<std::string, ExpertPieces> stacks;
  for (const auto& linear : model.modules) {
    const std::string_view module = linear->module();
    if (const auto expert = ParseExpertName(module)) {
      const std::optional<PlaceInStack> place = PlaceOf(*expert);
      if (!place || !stack_experts) continue;
      ExpertPieces& stack = stacks[fmt::format("{}.{}", expert->mixture, place->whole)];
      stack.per_expert = place->of;
      stack.pieces.push_back({expert->index, place->place, linear.get()});
    } else if (const SiblingSet* set = !siblings || IsExpert(module) ? nullptr : SetOf(module)) {
      sets.emplace(std::pair(ParentOf(module), set->fused), set);
    }
  }
  FusedModules fused;
  for (const auto& [place, set] : sets) {
    PREPACK_TRY(FuseSet(checkpoint, model, place.first, *set, fused));
  }
  for (auto& [name, stack] : stacks) {
    PREPACK_TRY(FuseExperts(checkpoint, name, std::move(stack), for_values, fused));
  }
  return fused;
}

}  // namespace prepack
