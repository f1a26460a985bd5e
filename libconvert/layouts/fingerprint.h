#ifndef PREPACK_LAYOUTS_FINGERPRINT_H_
#define PREPACK_LAYOUTS_FINGERPRINT_H_

// The packing fingerprint of a layout: the hash of what it makes of a fixed pseudo-random module.
// It stands in the table, goes into every manifest, and is recomputed in milliseconds: when a
// change moves a nibble, the fingerprint changes, and the layout needs a new version.

#include <string>

#include "layouts/layout.h"

namespace prepack {

// Packs a probe module in every variant that the layout takes (all schemes of probes.h; bf16 and
// f16 activations; N = 96, K = 160, groups of 32; zero points 0 and 15 among them; scales that need
// rounding) and hashes name, dtype, shape and bytes of each part.
std::string PackingFingerprint(const Layout& layout, Isa isa);

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_FINGERPRINT_H_
