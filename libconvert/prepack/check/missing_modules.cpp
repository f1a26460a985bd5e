// Finds modules of which nothing is stored. There is no list of what an architecture must have, so
// a layer is measured by the other layers: a block is incomplete if more layers have more of it.

#include "prepack/check/model_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "prepack/base/text.h"
#include "prepack/check/check.h"
#include "prepack/container/json_fields.h"
#include "prepack/container/model_config.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/model_parts.h"
#include "prepack/formats/module_match.h"
#include "prepack/model/module_name.h"

namespace prepack {
void CheckLayers(const Checkpoint& checkpoint, std::vector<Finding>& findings) {
  const std::optional<uint64_t> layers =
      CountOf(LanguageConfig(checkpoint.config()), "num_hidden_layers");
  const std::string_view list = FindDecoderList(checkpoint);
  std::set<uint64_t> present;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    if (const auto layer = ParseLayerName(tensor.name); layer && layer->list == list) {
      present.insert(layer->index);
    }
  }
  if (!layers || present.empty()) return;
  if (const MissingNumbers missing = MissingBelow(*layers, present); missing.count != 0) {
    findings.push_back(MakeFinding("layer-missing", "config.json: num_hidden_layers",
                                   fmt::format("{} of {} layers have no tensor: {}", missing.count,
                                               *layers, ShowMissing(missing))));
  }
  if (*present.rbegin() >= *layers) {
    findings.push_back(MakeFinding(
        "layer-unknown", "config.json: num_hidden_layers",
        fmt::format("there is a layer {}, but config.json counts {}", *present.rbegin(), *layers)));
  }
}

std::optional<uint64_t> CountOf(const Json& config, std::string_view key) {
  const Json* value = JsonMember(config, key);
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
  return value->get<uint64_t>();
}

MissingNumbers MissingBelow(uint64_t count, const std::set<uint64_t>& present) {
  const auto end = present.lower_bound(count);
  MissingNumbers missing;
  missing.count = count - static_cast<uint64_t>(std::distance(present.begin(), end));
  for (uint64_t i = 0;
       i < count && missing.first.size() < std::min<uint64_t>(missing.count, kShownNumbers); ++i) {
    if (!present.contains(i)) missing.first.push_back(i);
  }
  return missing;
}

std::string ShowMissing(const MissingNumbers& missing) {
  return fmt::format("{}{}", fmt::join(missing.first, ", "),
                     missing.count > missing.first.size() ? ", …" : "");
}

namespace {

// If only a few layers lack something, it is an error: at most one for this many that have it.
constexpr size_t kHavingPerLacking = 3;

// A block by its role, without the number of its layer: "mlp" of "model.layers". After another
// number, as with experts, `tail` continues: "mlp.experts" and "" stand for each expert.
struct Role {
  std::string_view list;
  std::string_view head;
  std::optional<std::string_view> tail;

  friend bool operator<(const Role& a, const Role& b) {
    return std::tie(a.list, a.head, a.tail) < std::tie(b.list, b.head, b.tail);
  }
};

using Children = std::set<std::string_view>;
using Blocks = std::map<uint64_t, Children>;  // by layer

std::string BlockName(const Role& role, uint64_t layer) {
  std::string name = fmt::format("{}.{}", role.list, layer);
  if (!role.head.empty()) name += fmt::format(".{}", role.head);
  if (role.tail) name += ".*";
  if (role.tail && !role.tail->empty()) name += fmt::format(".{}", *role.tail);
  return name;
}

// The modules of a model as a tree: every block with the names of what lies directly in it.
class ModuleTree {
 public:
  explicit ModuleTree(const Checkpoint& checkpoint) {
    std::string_view last;
    for (const StoredTensor& tensor : checkpoint.tensors()) {
      if (tensor.name.size() > kMaxModuleNameBytes) continue;  // every part of a name takes time
      const std::string_view module =
          std::string_view(tensor.name).substr(0, tensor.name.rfind('.'));
      if (module == last) continue;
      last = module;
      // Parses the whole name: a tensor may lie directly in a layer.
      if (const auto layer = ParseLayerName(tensor.name)) Add(*layer);
    }
  }

  const std::map<Role, Blocks>& roles() const { return roles_; }

 private:
  void Add(const LayerName& layer) {
    std::string_view path = layer.below;
    const size_t dot = path.rfind('.');
    if (dot == std::string_view::npos) return;
    path = path.substr(0, dot);
    size_t head = 0;  // length of the text so far
    std::optional<size_t> tail;
    for (size_t begin = 0; begin <= path.size();) {
      const size_t end = std::min(path.find('.', begin), path.size());
      const std::string_view part = path.substr(begin, end - begin);
      if (!ParseUint(part)) {
        const Role role{.list = layer.list,
                        .head = path.substr(0, head),
                        .tail = tail ? std::optional(Between(path, *tail, begin)) : std::nullopt};
        roles_[role][layer.index].insert(part);
        if (!tail) head = end;
      } else if (tail) {
        return;  // numbers within numbered blocks: their meaning is unknown
      } else {
        tail = end + 1;
      }
      begin = end + 1;
    }
  }

  // The parts from `from` to before the dot at `to` - 1.
  static std::string_view Between(std::string_view path, size_t from, size_t to) {
    return to <= from ? std::string_view() : path.substr(from, to - from - 1);
  }

  std::map<Role, Blocks> roles_;
};

// What config.json says about the layers of the decoder.
class LayerKinds {
 public:
  explicit LayerKinds(const Json& config) : config_(config) {
    for (const std::string_view key : {"num_kv_shared_layers", "attention_k_eq_v", "use_cla"}) {
      const Json* value = JsonMember(config, key);
      shares_keys_ = shares_keys_ || (value != nullptr && *value != false && *value != 0);
    }
  }

  bool shares_keys() const { return shares_keys_; }
  // Layers found by a search of architectures may lack a whole block.
  bool blocks_vary() const { return JsonMember(config_, "block_configs") != nullptr; }

  // Empty if config.json does not tell.
  std::string Of(uint64_t layer) const {
    std::string kind;
    for (const std::string_view key : {"layer_types", "layers_block_type", "attn_type_list"}) {
      const Json* list = JsonMember(config_, key);
      if (list != nullptr && list->is_array() && layer < list->size()) {
        kind += ShowJson((*list)[layer]) + ",";
      }
    }
    return kind;
  }

 private:
  const Json& config_;
  bool shares_keys_ = false;
};

std::string ShowNames(const Children& names) {
  constexpr size_t kMaxShown = 8;
  std::vector<std::string_view> shown(names.begin(), names.end());
  if (shown.size() > kMaxShown) {
    shown.resize(kMaxShown);
    shown.emplace_back("…");
  }
  return fmt::format("{}", fmt::join(shown, ", "));
}

bool Contains(const Children& all, const Children& some) {
  return std::ranges::includes(all, some);
}

bool IsKeyOrValue(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kNames = {"k_proj", "v_proj", "k_norm", "v_norm",
                                                             "kv_proj"};
  return std::ranges::find(kNames, name) != kNames.end();
}

// `module` needs one of `partners` beside it; unused entries are empty.
struct Partners {
  std::string_view module;
  std::array<std::string_view, 6> partners;
};

constexpr std::array<Partners, 5> kPartners = {{
    {"gate_proj", {"up_proj"}},
    {"q_proj", {"k_proj", "kv_proj", "kv_a_proj_with_mqa", "kv_a_proj"}},
    {"q_proj", {"v_proj", "kv_proj", "kv_b_proj"}},
    {"q_proj", {"o_proj", "out_proj", "dense", "wo", "c_proj", "proj"}},
    {"k_proj", {"q_proj", "q_a_proj", "q_b_proj"}},
}};

// The first name of each row that has no module.
Children MissingPartners(const Children& children) {
  Children missing;
  for (const Partners& row : kPartners) {
    if (!children.contains(row.module)) continue;
    const bool found = std::ranges::any_of(row.partners, [&](std::string_view partner) {
      return !partner.empty() && children.contains(partner);
    });
    if (!found) missing.insert(row.partners.front());
  }
  return missing;
}

class Search {
 public:
  Search(const Checkpoint& checkpoint, FindingTally& findings)
      : tree_(checkpoint),
        decoder_(FindDecoderList(checkpoint)),
        kinds_(LanguageConfig(checkpoint.config())),
        findings_(findings) {
    const Json* layers = JsonMember(LanguageConfig(checkpoint.config()), "num_hidden_layers");
    if (layers != nullptr && layers->is_number_unsigned()) layers_ = layers->get<uint64_t>();
  }

  void Run() {
    for (const auto& [role, blocks] : tree_.roles()) {
      Blocks counted = blocks;
      // Layers beyond these predict further tokens and differ from the others.
      if (layers_ && role.list == decoder_)
        counted.erase(counted.lower_bound(*layers_), counted.end());
      CompareLayers(role, counted);
      CheckPartners(role, counted);
    }
  }

 private:
  void CompareLayers(const Role& role, const Blocks& blocks) {
    if (role.head.empty() && kinds_.blocks_vary()) return;
    std::map<Children, std::vector<uint64_t>> variants;
    for (const auto& [layer, children] : blocks) variants[children].push_back(layer);
    // Models have a handful of kinds of layers; if there are many more, they follow no pattern.
    constexpr size_t kMaxVariants = 64;
    if (variants.size() < 2 || variants.size() > kMaxVariants) return;
    for (const auto& [children, layers] : variants) {
      const Children* fuller = nullptr;
      size_t most = layers.size();
      for (const auto& [others, other_layers] : variants) {
        if (other_layers.size() <= most || !Contains(others, children)) continue;
        fuller = &others;
        most = other_layers.size();
      }
      if (fuller != nullptr) ReportLacking(role, blocks, children, layers, *fuller);
    }
  }

  void ReportLacking(const Role& role, const Blocks& blocks, const Children& children,
                     const std::vector<uint64_t>& layers, const Children& fuller) {
    Children missing;
    std::ranges::set_difference(fuller, children, std::inserter(missing, missing.end()));
    std::vector<uint64_t> having;
    for (const auto& [layer, others] : blocks) {
      if (Contains(others, missing)) having.push_back(layer);
    }
    const std::vector<uint64_t> lacking = Unexplained(role, layers, having);
    if (lacking.empty()) return;
    const bool shared = kinds_.shares_keys() && std::ranges::all_of(missing, IsKeyOrValue);
    const bool few = lacking.size() * kHavingPerLacking <= having.size();
    const std::string message = fmt::format("lacks {}, which {} of {} layers have",
                                            ShowNames(missing), having.size(), blocks.size());
    for (const uint64_t layer : lacking) {
      const std::string block = BlockName(role, layer);
      reported_.insert(block);
      if (shared) {
        findings_.Add("module-shared", block, message + "; config.json says that they are shared");
      } else if (few && role.list == decoder_) {
        findings_.Add("module-missing", block, message);
      } else {
        findings_.Add("module-irregular", block, message);
      }
    }
  }

  // Leaves out layers of a kind that config.json names if no layer of that kind has the modules.
  std::vector<uint64_t> Unexplained(const Role& role, const std::vector<uint64_t>& lacking,
                                    const std::vector<uint64_t>& having) const {
    if (role.list != decoder_) return lacking;
    std::set<std::string> kinds = {""};
    for (const uint64_t layer : having) kinds.insert(kinds_.Of(layer));
    std::vector<uint64_t> left;
    for (const uint64_t layer : lacking) {
      if (kinds.contains(kinds_.Of(layer))) left.push_back(layer);
    }
    return left;
  }

  void CheckPartners(const Role& role, const Blocks& blocks) {
    for (const auto& [layer, children] : blocks) {
      const Children missing = MissingPartners(children);
      if (missing.empty()) continue;
      if (kinds_.shares_keys() && std::ranges::all_of(missing, IsKeyOrValue)) continue;
      const std::string block = BlockName(role, layer);
      if (reported_.contains(block)) continue;
      findings_.Add("module-partner-missing", block,
                    fmt::format("has {}, but no {}", ShowNames(children), ShowNames(missing)));
    }
  }

  const ModuleTree tree_;
  const std::string_view decoder_;
  const LayerKinds kinds_;
  std::optional<uint64_t> layers_;  // num_hidden_layers
  std::set<std::string, std::less<>> reported_;
  FindingTally& findings_;
};

}  // namespace

void CheckMissingModules(const Checkpoint& checkpoint, std::vector<Finding>& findings) {
  FindingTally tally;
  Search(checkpoint, tally).Run();
  for (Finding& finding : tally.Take()) findings.push_back(std::move(finding));
}

}  // namespace prepack
