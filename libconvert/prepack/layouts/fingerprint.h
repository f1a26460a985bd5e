#pragma once

// Made-up modules that layouts are tried with: for fingerprints, tests and benchmarks. A layout in
// the table gets its share of them without another line.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "prepack/base/random.h"
#include "prepack/layouts/layout.h"

namespace prepack {

// Every kind of scheme that there is a layout for, for a module of n by k weights. Groups of
// `group_size` where there are groups, blocks of 32 output by 128 input channels where there are
// blocks.
std::vector<Scheme> ProbeSchemes(uint64_t n, uint64_t k, uint64_t group_size);

// The same with those that only checkpoint formats have.
std::vector<Scheme> CheckpointProbeSchemes(uint64_t n, uint64_t k, uint64_t group_size);

struct Probe {
  std::vector<std::byte> codes;      // a panel of the whole module
  std::vector<float> scales;         // [N, G], of both signs and many magnitudes
  std::vector<uint8_t> zero_points;  // [N, G], the extremes among them
  std::vector<float> bias = {};      // [N] or none, for layouts whose weight holds it
};

Probe MakeProbe(const PackRequest& request, SplitMix64& random);

// All of a module as one tile and one panel.
PackJob WholeModule(const PackRequest& request, const Probe& probe);
// A part packed whole. Of small parts and sums, which are not the layout's, nothing.
std::vector<std::byte> PackWhole(const Layout& layout, const PackRequest& request,
                                 const Probe& probe, PartRole role);

// The packing fingerprint of a layout: the hash of what it makes of a fixed pseudo-random module.
// It stands in the table, goes into every manifest, and is recomputed in milliseconds: when a
// change moves a nibble, the fingerprint changes, and the layout needs a new version.

// Packs a probe module in every variant that the layout takes (all schemes of
// the probes above; bf16 and f16 activations; N = 96, K = 160, groups of 32; zero points 0 and
// 15 among them; scales that need rounding) and hashes name, dtype, shape and bytes of each part.
std::string PackingFingerprint(const Layout& layout);

}  // namespace prepack
