#include "formats/layer_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

namespace prepack {
namespace {

constexpr std::array<std::string_view, 3> kListNames = {"layers", "blocks", "h"};

constexpr std::array<std::string_view, 4> kDecoderLists = {
    "model.layers",
    "model.language_model.layers",
    "language_model.model.layers",
    "transformer.h",
};

}  // namespace

std::optional<uint64_t> WholeNumber(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<LayerName> ParseLayerName(std::string_view name) {
  std::optional<LayerName> found;
  bool in_list = false;  // the part before this one names a list
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (in_list && end < name.size()) {
      if (const auto index = WholeNumber(part)) {
        found = {.list = name.substr(0, begin - 1), .index = *index, .below = name.substr(end + 1)};
      }
    }
    in_list = std::ranges::find(kListNames, part) != kListNames.end();
    begin = end + 1;
  }
  return found;
}

bool IsDecoderModule(std::string_view module) {
  const auto layer = ParseLayerName(module);
  return layer && std::ranges::find(kDecoderLists, layer->list) != kDecoderLists.end();
}

std::string_view FindDecoderList(const Checkpoint& checkpoint) {
  std::set<std::string_view> lists;
  std::string_view last;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    // Names are sorted, so that most are of the list before.
    if (!last.empty() && tensor.name.starts_with(last)) continue;
    const auto layer = ParseLayerName(tensor.name);
    if (!layer) continue;
    last = layer->list;
    lists.insert(last);
  }
  for (const std::string_view known : kDecoderLists) {
    if (const auto list = lists.find(known); list != lists.end()) return *list;
  }
  return lists.size() == 1 ? *lists.begin() : std::string_view();
}

}  // namespace prepack
