#include "prepack/packed/node_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "prepack/model/module_name.h"
#include "prepack/model/window_linear.h"

namespace prepack {
namespace {

// What the kernels take at a time: 64 bytes of input channels, which are the output channels of
// other layers of the expert.
uint64_t NodeUnit(const QuantizedLinear& linear) {
  return linear.scheme().code == CodeType::kU4 ? 128 : 64;
}

std::string ShareName(std::string_view module, uint64_t node) {
  return fmt::format("{}.numa.{}", module, node);
}

}  // namespace

bool IsCutByInputs(std::string_view module) {
  const std::string_view projection = LastPart(module);
  return projection == "down_proj" || projection == "w2";
}

Result<std::vector<std::unique_ptr<QuantizedLinear>>> CutForNodes(const QuantizedLinear& whole,
                                                                  uint64_t nodes) {
  const bool by_inputs = IsCutByInputs(whole.module());
  const uint64_t channels = by_inputs ? whole.k() : whole.n();
  const uint64_t unit = NodeUnit(whole);
  if (channels % (nodes * unit) != 0) {
    return Usage("--numa",
                 fmt::format("module {} cannot be cut for {} nodes", whole.module(), nodes))
        .Found(fmt::format("{} {} channels", channels, by_inputs ? "input" : "output"))
        .Expected(fmt::format("a multiple of {}: each node computes a multiple of {}", nodes * unit,
                              unit));
  }
  std::vector<std::unique_ptr<QuantizedLinear>> shares;
  const uint64_t each = channels / nodes;
  for (uint64_t node = 0; node < nodes; ++node) {
    PanelRange window{.n0 = 0, .rows = whole.n(), .k0 = 0, .cols = whole.k()};
    (by_inputs ? window.k0 : window.n0) = node * each;
    (by_inputs ? window.cols : window.rows) = each;
    PREPACK_TRY_ASSIGN(std::unique_ptr<QuantizedLinear> share,
                       TakeWindow(whole, ShareName(whole.module(), node), window));
    shares.push_back(std::move(share));
  }
  return shares;
}

uint64_t NodesOf(const Manifest& manifest, std::string_view module) {
  const std::string_view whole = ParseNodeShare(module).module;
  uint64_t nodes = 0;
  while (nodes < kMostNodes && manifest.modules.contains(ShareName(whole, nodes))) ++nodes;
  return std::max<uint64_t>(nodes, 1);
}

void CutAsPacked(const Manifest& manifest, QuantizedModel& model) {
  std::set<const QuantizedLinear*> gone;
  std::vector<std::unique_ptr<QuantizedLinear>> pieces;
  for (const auto& linear : model.modules) {
    if (!manifest.modules.contains(ShareName(linear->module(), 0))) continue;
    auto shares = CutForNodes(*linear, NodesOf(manifest, linear->module()));
    if (!shares.ok()) continue;
    gone.insert(linear.get());
    std::move(shares->begin(), shares->end(), std::back_inserter(pieces));
  }
  model.Replace(gone, std::move(pieces));
}

}  // namespace prepack
