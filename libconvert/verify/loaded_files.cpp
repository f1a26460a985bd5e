#include "verify/loaded_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

namespace prepack {
namespace {

constexpr std::string_view kWeightsSuffix = ".safetensors";

// Upper and lower case are one to some file systems, and to who copies from them.
bool IsWeights(std::string_view name) {
  if (name.size() < kWeightsSuffix.size()) return false;
  name.remove_prefix(name.size() - kWeightsSuffix.size());
  return std::ranges::equal(name, kWeightsSuffix, {},
                            [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
}

}  // namespace

std::vector<std::string> FilesNotLoaded(const Manifest& manifest) {
  std::set<std::string> weights;
  for (const auto& [name, record] : manifest.files) {
    if (IsWeights(name)) weights.insert(name);
  }
  std::set<std::string> loaded = {"model.safetensors"};
  if (manifest.files.contains("model.safetensors.index.json")) {
    loaded.clear();
    size_t count = 0;
    const auto name = [&](size_t shard) {
      return fmt::format("model-{:05}-of-{:05}{}", shard, count, kWeightsSuffix);
    };
    // As many shards as there are names of one series, which has to be whole.
    for (count = weights.size(); count > 0 && !weights.contains(name(1)); --count) {
    }
    for (size_t shard = 1; shard <= count; ++shard) loaded.insert(name(shard));
  }
  std::vector<std::string> passed_over;
  std::ranges::set_difference(weights, loaded, std::back_inserter(passed_over));
  return passed_over;
}

}  // namespace prepack
