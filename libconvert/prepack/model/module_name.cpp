#include "prepack/model/module_name.h"

#include <algorithm>
#include <array>

#include "prepack/base/text.h"

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

std::string_view LastPart(std::string_view name) {
  return name.substr(name.rfind('.') + 1);  // npos + 1 is 0
}

std::string_view ModuleOf(std::string_view name) {
  return name.substr(0, std::min(name.rfind('.'), name.size()));
}

std::string RoleOf(std::string_view module) {
  std::string role;
  while (true) {
    const size_t dot = module.find('.');
    const std::string_view part = module.substr(0, dot);
    role += ParseUint(part) ? std::string_view("#") : part;
    if (dot == std::string_view::npos) return role;
    role += '.';
    module.remove_prefix(dot + 1);
  }
}

std::optional<LayerName> ParseLayerName(std::string_view name) {
  std::optional<LayerName> found;
  bool in_list = false;  // the part before this one names a list
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (in_list && end < name.size()) {
      if (const auto index = ParseUint(part)) {
        found = {.list = name.substr(0, begin - 1), .index = *index, .below = name.substr(end + 1)};
      }
    }
    in_list = std::ranges::find(kListNames, part) != kListNames.end();
    begin = end + 1;
  }
  return found;
}

std::span<const std::string_view> DecoderListNames() {
  return kDecoderLists;
}

bool IsExpert(std::string_view module) {
  return module.starts_with("experts.") || module.find(".experts.") != std::string_view::npos;
}

std::optional<ExpertName> ParseExpertName(std::string_view module) {
  const size_t last_dot = module.rfind('.');
  if (last_dot == std::string_view::npos) return std::nullopt;
  const std::string_view front = module.substr(0, last_dot);
  const std::string_view back = module.substr(last_dot + 1);
  const size_t dot = front.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view mixture = front.substr(0, dot);
  const std::string_view middle = front.substr(dot + 1);
  if (LastPart(mixture) != "experts") return std::nullopt;
  if (const auto index = ParseUint(middle)) {
    return ExpertName{.mixture = mixture, .projection = back, .index = *index};
  }
  if (const auto index = ParseUint(back)) {
    return ExpertName{
        .mixture = mixture, .projection = middle, .index = *index, .stored_stacked = true};
  }
  return std::nullopt;
}

NodeShare ParseNodeShare(std::string_view module) {
  constexpr std::string_view kNode = ".numa";
  const std::string_view front = ModuleOf(module);
  const auto node = ParseUint(LastPart(module));
  if (!node || !front.ends_with(kNode)) return {.module = module};
  return {.module = front.substr(0, front.size() - kNode.size()), .node = *node, .is_share = true};
}

bool IsDecoderModule(std::string_view module) {
  const auto layer = ParseLayerName(module);
  return layer && std::ranges::find(kDecoderLists, layer->list) != kDecoderLists.end();
}

}  // namespace prepack
