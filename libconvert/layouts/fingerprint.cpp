#include "layouts/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/hash.h"
#include "layouts/probes.h"

namespace prepack {
namespace {

// 96 = 3 · 32 output and 160 = 5 · 32 input channels: no powers of two, and multiples of the block
// of every layout. Groups of 32 make five of them.
constexpr uint64_t kProbeN = 96;
constexpr uint64_t kProbeK = 160;
constexpr uint64_t kProbeGroup = 32;
constexpr uint64_t kProbeSeed =
    20240914;  // any fixed number; changing it changes every fingerprint

void HashModule(const Layout& layout, const PackRequest& request, Isa isa, Xxh3Hasher& hasher) {
  SplitMix64 random(kProbeSeed);
  const Probe probe = MakeProbe(request, random);
  for (const PartSpec& part : layout.parts(request)) {
    hasher.Update(
        fmt::format("{} {} [{}]\n", part.name, DTypeName(part.dtype), fmt::join(part.shape, ",")));
    hasher.Update(PackWhole(layout, request, isa, probe, part.role));
  }
}

}  // namespace

std::string PackingFingerprint(const Layout& layout, Isa isa) {
  Xxh3Hasher hasher;
  for (const Scheme& scheme : ProbeSchemes(kProbeN, kProbeK, kProbeGroup)) {
    for (const DType activations : {DType::kBF16, DType::kF16}) {
      PackRequest request;
      request.scheme = scheme;
      request.n = kProbeN;
      request.k = kProbeK;
      request.activation_dtype = activations;
      request.stored_scale_dtype = DType::kF32;
      request.inputs_first = layout.inputs_first;
      if (layout.eligible(request).ok) HashModule(layout, request, isa, hasher);
    }
  }
  return hasher.HexDigest();
}

}  // namespace prepack
