#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/container/json.h"
#include "prepack/model/scheme.h"

namespace prepack {

// A packed module, as far as config.json says anything of it. All of it must live longer.
struct PackedScheme {
  std::string_view module;
  std::string_view layout;
  const Scheme* scheme = nullptr;  // modules share theirs with others
  bool act_order = false;          // of a checkpoint, see ModuleRecord
};

// What a config says of each module, where few of many modules differ.
class ModuleKinds {
 public:
  // What the config says of a module; depends on all but its name.
  using Describe = Json (*)(const PackedScheme& module);

  ModuleKinds(std::span<const PackedScheme> modules, Describe describe) : describe_(describe) {
    for (const PackedScheme& module : modules) {
      if (numbers_.empty() || !SameAsLast(module)) Find(module);
      numbers_.push_back(last_);
      ++counts_[last_];
    }
  }

  size_t size() const { return list_.size(); }
  // The number of the kind that most modules are of, the first one if several are equally frequent.
  size_t MostCommon() const {
    return static_cast<size_t>(std::ranges::max_element(counts_) - counts_.begin());
  }
  // The number of a module's kind.
  size_t NumberOf(size_t module) const { return numbers_[module]; }
  // An empty object if there are no modules.
  const Json& At(size_t number) const { return number < list_.size() ? list_[number] : empty_; }

 private:
  // Neighbours are mostly alike, and comparing them is cheaper than making JSON.
  bool SameAsLast(const PackedScheme& module) const {
    return module.layout == last_module_.layout && *module.scheme == *last_module_.scheme &&
           module.act_order == last_module_.act_order;
  }
  void Find(const PackedScheme& module) {
    last_module_ = module;
    Json kind = describe_(module);
    last_ = static_cast<size_t>(std::ranges::find(list_, kind) - list_.begin());
    if (last_ < list_.size()) return;
    list_.push_back(std::move(kind));
    counts_.push_back(0);
  }

  Describe describe_;
  std::vector<Json> list_;
  std::vector<size_t> counts_;   // of modules, by number of the kind
  std::vector<size_t> numbers_;  // of kinds, by module
  PackedScheme last_module_;
  size_t last_ = 0;
  Json empty_ = Json::object();
};

}  // namespace prepack
