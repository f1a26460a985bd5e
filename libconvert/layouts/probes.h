#ifndef PREPACK_LAYOUTS_PROBES_H_
#define PREPACK_LAYOUTS_PROBES_H_

// Made-up modules that layouts are tried with: for fingerprints, tests and benchmarks. A layout in
// the table gets its share of them without another line.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "layouts/layout.h"

namespace prepack {

// Every kind of scheme that there is a layout for, for a module of n by k weights. Groups of
// `group_size` where there are groups, blocks of 32 output by 128 input channels where there are
// blocks.
std::vector<Scheme> ProbeSchemes(uint64_t n, uint64_t k, uint64_t group_size);

struct Probe {
  std::vector<std::byte> codes;      // a panel of the whole module
  std::vector<float> scales;         // [N, G], of both signs and many magnitudes
  std::vector<uint8_t> zero_points;  // [N, G], the extremes among them
};

Probe MakeProbe(const PackRequest& request, SplitMix64& random);

// All of a module as one tile and one panel.
PackJob WholeModule(const PackRequest& request, Isa isa, const Probe& probe);
// A part packed whole. Of small parts and sums, which are not the layout's, nothing.
std::vector<std::byte> PackWhole(const Layout& layout, const PackRequest& request, Isa isa,
                                 const Probe& probe, PartRole role);

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_PROBES_H_
