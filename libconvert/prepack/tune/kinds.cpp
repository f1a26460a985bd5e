#include "prepack/tune/kinds.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "prepack/model/module_name.h"

namespace prepack {
namespace {

bool IsAlike(const QuantizedLinear& a, const QuantizedLinear& b) {
  return a.n() == b.n() && a.k() == b.k() && a.scheme() == b.scheme() &&
         a.reordered() == b.reordered() && a.stored_scale_dtype() == b.stored_scale_dtype();
}

// By layer: names sort layer 10 before layer 2.
bool IsInEarlierLayer(const QuantizedLinear* a, const QuantizedLinear* b) {
  const auto index = [](const QuantizedLinear* linear) {
    const auto layer = ParseLayerName(linear->module());
    return layer ? layer->index : 0;
  };
  return index(a) < index(b);
}

void AddToShapes(const QuantizedLinear& linear, std::vector<TuneShape>& shapes) {
  const auto alike = std::ranges::find_if(
      shapes, [&](const TuneShape& shape) { return IsAlike(shape.first(), linear); });
  if (alike == shapes.end()) {
    shapes.push_back({.modules = {&linear}, .sample = {}});
  } else {
    alike->modules.push_back(&linear);
  }
}

// Why the op that runs such a module is none that is measured; empty if it is.
std::string_view WhyLeftOut(const QuantizedLinear& linear) {
  if (IsExpert(linear.module())) {
    return "experts run in ops for all experts of a layer, which are not measured yet";
  }
  if (linear.scheme().code == CodeType::kBF16) return "its weights are not quantized";
  return "";
}

}  // namespace

size_t TuneKind::modules() const {
  size_t count = 0;
  for (const TuneShape& shape : shapes) count += shape.modules.size();
  return count;
}

std::string TuneKind::Pattern() const {
  std::string pattern = "^";
  for (const char c : role) {
    if (c == '#') {
      pattern += "[0-9]+";
    } else if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) {
      pattern += {'\\', c};
    } else {
      pattern += c;
    }
  }
  return pattern + "$";
}

std::vector<size_t> SpreadOver(size_t all, uint64_t count) {
  std::vector<size_t> places;
  const size_t wanted = static_cast<size_t>(std::min<uint64_t>(all, count));
  for (size_t i = 0; i < wanted; ++i) {
    places.push_back(wanted == 1 ? 0 : i * (all - 1) / (wanted - 1));
  }
  return places;
}

TuneKinds KindsOf(const QuantizedModel& model, uint64_t layers) {
  TuneKinds result;
  std::map<std::pair<std::string, uint32_t>, TuneKind> kinds;
  for (const auto& linear : model.modules) {
    std::string role = RoleOf(linear->module());
    if (const std::string_view why = WhyLeftOut(*linear); !why.empty()) {
      result.left_out.emplace(std::move(role), why);
      continue;
    }
    TuneKind& kind = kinds[std::pair(role, linear->scheme().bits)];
    kind.role = std::move(role);
    kind.bits = linear->scheme().bits;
    AddToShapes(*linear, kind.shapes);
  }
  for (auto& [key, kind] : kinds) {
    for (TuneShape& shape : kind.shapes) {
      std::ranges::stable_sort(shape.modules, IsInEarlierLayer);
      for (const size_t place : SpreadOver(shape.modules.size(), layers)) {
        shape.sample.push_back(shape.modules[place]);
      }
    }
    result.kinds.push_back(std::move(kind));
  }
  return result;
}

}  // namespace prepack
