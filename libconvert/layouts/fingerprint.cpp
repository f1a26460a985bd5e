#include "layouts/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/hash.h"
#include "base/random.h"

namespace prepack {
namespace {

// 96 = 3 · 32 output and 160 = 5 · 32 input channels: no powers of two, and multiples of the block
// of every layout. Groups of 32 make five of them.
constexpr uint64_t kProbeN = 96;
constexpr uint64_t kProbeK = 160;
constexpr uint64_t kProbeGroup = 32;
constexpr uint64_t kProbeSeed =
    20240914;  // any fixed number; changing it changes every fingerprint

struct ProbeModule {
  std::vector<std::byte> codes;  // a panel of all rows
  std::vector<float> scales;
  std::vector<uint8_t> zero_points;
};

ProbeModule MakeProbe(const PackRequest& request) {
  SplitMix64 random(kProbeSeed);
  ProbeModule probe;
  for (uint64_t i = 0; i < request.n * request.k / 2; ++i) {
    probe.codes.push_back(static_cast<std::byte>(random.Below(256)));
  }
  for (uint64_t i = 0; i < request.n * request.groups(); ++i) {
    // Of both signs, of many magnitudes, and with more digits than 16 bits hold.
    const auto magnitude = static_cast<float>(1 + random.Below(1 << 20)) * 0x1p-24F;
    probe.scales.push_back(random.Below(4) == 0 ? -magnitude : magnitude);
    // The first zero points are the extremes, the others anything.
    const uint64_t zero_point = i == 0 ? 0 : i == 1 ? 15 : random.Below(16);
    probe.zero_points.push_back(request.scheme.symmetric ? ZeroOfSymmetric(request.scheme)
                                                         : static_cast<uint8_t>(zero_point));
  }
  return probe;
}

void HashPart(const Layout& layout, const PackRequest& request, const ProbeModule& probe,
              const PartSpec& part, Isa isa, Xxh3Hasher& hasher) {
  std::vector<std::byte> packed(layout.place(request, part.role, 0, request.n).bytes());
  switch (part.role) {
    case PartRole::kWeight:
      layout.pack_codes(request, isa, {.rows = request.n, .k0 = 0, .cols = request.k}, probe.codes,
                        packed);
      break;
    case PartRole::kScale:
      // The probe's scales fit every dtype, so this cannot fail; if it did, the bytes stay zero and
      // the fingerprint is wrong, which is what a fingerprint is for.
      static_cast<void>(layout.pack_scales(request, request.n, probe.scales, packed));
      break;
    case PartRole::kZeroPoint:
      layout.pack_zero_points(request, request.n, probe.zero_points, packed);
      break;
  }
  hasher.Update(
      fmt::format("{} {} [{}]\n", part.name, DTypeName(part.dtype), fmt::join(part.shape, ",")));
  hasher.Update(packed);
}

}  // namespace

std::string PackingFingerprint(const Layout& layout, Isa isa) {
  Xxh3Hasher hasher;
  for (const bool symmetric : {true, false}) {
    for (const DType activations : {DType::kBF16, DType::kF16}) {
      PackRequest request;
      request.scheme = {.code = CodeType::kU4,
                        .bits = 4,
                        .granularity = Granularity::kGroup,
                        .group_size = kProbeGroup,
                        .scale_rows = 1,
                        .symmetric = symmetric,
                        .activations = {}};
      request.n = kProbeN;
      request.k = kProbeK;
      request.activation_dtype = activations;
      request.stored_scale_dtype = DType::kF32;
      if (!layout.eligible(request).ok) continue;
      const ProbeModule probe = MakeProbe(request);
      for (const PartSpec& part : layout.parts(request)) {
        HashPart(layout, request, probe, part, isa, hasher);
      }
    }
  }
  return hasher.HexDigest();
}

}  // namespace prepack
