#include "prepack/verify/channel_panels.h"

#include <algorithm>
#include <set>

#include "prepack/base/checked.h"
#include "prepack/base/random.h"
#include "prepack/kernels/strip_products.h"

namespace prepack {

std::vector<ChannelPanel> CutChannels(const PackedModule& packed, uint64_t channels) {
  const uint64_t n = packed.request().n;
  std::vector<ChannelPanel> panels;
  for (uint64_t n0 = 0; n0 < n; n0 += channels) {
    panels.push_back({.n0 = n0, .channels = std::min(channels, n - n0)});
  }
  return panels;
}

// Panels begin at a multiple of cut.unit, and may be narrower.
std::vector<ChannelPanel> SampledChannels(const PackedModule& packed, const ProductCut& cut,
                                          uint64_t weights) {
  const uint64_t n = packed.request().n;
  const uint64_t most = std::max<uint64_t>(cut.channels / kStripChannels, 1);
  const uint64_t strips =
      std::clamp<uint64_t>(weights / (cut.slab_inputs * kStripChannels), 1, most);
  const uint64_t wanted = strips * kStripChannels;
  const uint64_t reserved = CeilDiv(wanted, cut.unit) * cut.unit;
  if (packed.members().size() * reserved >= n) return CutChannels(packed, cut.channels);
  std::set<uint64_t> starts;
  uint64_t begin = 0;
  for (const FusedMember& member : packed.members()) {
    const uint64_t first = begin / cut.unit;
    const uint64_t last = (begin + member.n - 1) / cut.unit;
    const uint64_t unit = first + SeedOfName(member.module) % (last - first + 1);
    starts.insert(std::min(unit * cut.unit, (n - 1) / reserved * reserved));
    begin += member.n;
  }
  std::vector<ChannelPanel> panels;
  for (const uint64_t n0 : starts) {
    if (!panels.empty() && n0 < panels.back().n0 + panels.back().channels) continue;
    panels.push_back({.n0 = n0, .channels = std::min(wanted, n - n0)});
  }
  return panels;
}

}  // namespace prepack
