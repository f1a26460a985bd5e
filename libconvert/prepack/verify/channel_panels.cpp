#include "prepack/verify/channel_panels.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "prepack/base/checked.h"

namespace prepack {
namespace {

// Weights of a panel that is not in the sample.
constexpr uint64_t kFewPanelWeights = uint64_t{1} << 18;

// FNV-1a.
uint64_t HashOfName(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

// Adds output channels [n0, end), cut into panels.
void AddPanels(uint64_t n0, uint64_t end, uint64_t channels, bool sampled,
               std::vector<ChannelPanel>& panels) {
  for (; n0 < end; n0 += channels) {
    panels.push_back({.n0 = n0, .channels = std::min(channels, end - n0), .sampled = sampled});
  }
}

// The sample of the module as blocks of `size` channels: one of each member.
std::set<uint64_t> SampledBlocks(const PackedModule& packed, uint64_t size) {
  std::set<uint64_t> blocks;
  uint64_t begin = 0;
  for (const FusedMember& member : packed.members()) {
    const uint64_t first = begin / size;
    const uint64_t last = (begin + member.n - 1) / size;
    blocks.insert(first + HashOfName(member.module) % (last - first + 1));
    begin += member.n;
  }
  return blocks;
}

}  // namespace

std::vector<ChannelPanel> CutChannels(const PackedModule& packed, const ProductCut& cut,
                                      bool all_sampled) {
  const uint64_t n = packed.request().n;
  std::vector<ChannelPanel> panels;
  if (all_sampled) {
    AddPanels(0, n, cut.channels, true, panels);
    return panels;
  }
  const uint64_t size = CeilDiv(CeilDiv(kSampledWeights, cut.slab_inputs), cut.unit) * cut.unit;
  const std::set<uint64_t> sampled = SampledBlocks(packed, size);
  const auto begin_of = [&](uint64_t block) { return std::min(n, block * size); };
  for (const uint64_t block : sampled) {
    AddPanels(begin_of(block), begin_of(block + 1), std::min(size, cut.channels), true, panels);
  }
  const uint64_t few =
      std::max<uint64_t>(1, kFewPanelWeights / cut.slab_inputs / cut.unit) * cut.unit;
  uint64_t after = 0;  // the block behind the last one of the sample
  for (const uint64_t block : sampled) {
    AddPanels(begin_of(after), begin_of(block), few, false, panels);
    after = block + 1;
  }
  AddPanels(begin_of(after), n, few, false, panels);
  return panels;
}

}  // namespace prepack
