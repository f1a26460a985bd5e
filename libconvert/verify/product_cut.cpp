#include "verify/product_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "verify/second_decoder.h"

namespace prepack {
namespace {

// Weights of a panel: some MiB of f64.
constexpr uint64_t kPanelWeights = uint64_t{1} << 20;
// More channels would need more for their outputs than for their weights.
constexpr uint64_t kMostPanelChannels = 4096;
// A slab of a panel of the fewest channels has the weights of a panel.
constexpr uint64_t kSlabInputs = kPanelWeights / kModelBlock;

// Input channels that a slab must begin at a multiple of: for the models, for what decodes the
// source, and for what unpacks.
uint64_t UnitOfSlabs(const PackedModule& packed) {
  const PackRequest& request = packed.request();
  const uint64_t of_models = SlabUnit(request.k, request.scheme.group_size);
  const TileCut cut = packed.layout().cut(request);
  return std::lcm(std::lcm(of_models, kSecondInputsUnit), std::lcm(cut.cols, kPanelColsMultiple));
}

// Output channels of a panel: a multiple of what the layout, its strips and the models want.
uint64_t PanelChannels(const PackedModule& packed, uint64_t inputs) {
  const TileCut cut = packed.layout().cut(packed.request());
  uint64_t unit = kModelBlock;
  while (unit % cut.rows != 0 || unit % cut.strip_rows != 0) unit += kModelBlock;
  const uint64_t most = std::min(kPanelWeights / inputs, kMostPanelChannels);
  return std::max<uint64_t>(1, most / unit) * unit;
}

}  // namespace

bool IsOneDnnLayout(const Layout& layout) {
  return layout.id.starts_with("onednn/");
}

uint64_t ProductCut::slabs() const {
  return CeilDiv(k, slab_inputs);
}

std::optional<InputSlab> ProductCut::Slab(uint64_t index) const {
  if (slab_inputs == k) return std::nullopt;
  const uint64_t k0 = index * slab_inputs;
  return InputSlab{.k0 = k0, .inputs = std::min(slab_inputs, k - k0)};
}

Result<ProductCut> CutProducts(const PackedModule& packed) {
  const uint64_t k = packed.request().k;
  if (k <= kMostWholeInputs) {
    return ProductCut{.k = k, .slab_inputs = k, .channels = PanelChannels(packed, k)};
  }
  const uint64_t unit = UnitOfSlabs(packed);
  if (unit > kMostWholeInputs) {
    return Unsupported(fmt::format("module {}", packed.name()),
                       "it has too many input channels to multiply them at once, and groups that "
                       "cannot be cut into slabs")
        .Found(
            fmt::format("{} input channels in groups of {}", k, packed.request().scheme.group_size))
        .Expected(fmt::format("at most {}, or groups of a multiple of 128", kMostWholeInputs));
  }
  const uint64_t inputs = std::max<uint64_t>(1, kSlabInputs / unit) * unit;
  return ProductCut{.k = k, .slab_inputs = inputs, .channels = PanelChannels(packed, inputs)};
}

}  // namespace prepack
