#include "prepack/layouts/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "prepack/base/float_convert.h"
#include "prepack/base/hash.h"
#include "prepack/layouts/parameters.h"

namespace prepack {
namespace {

constexpr ActivationScheme kWide = {};

ActivationScheme EightBits(ActivationType type, bool symmetric, bool dynamic) {
  return {.type = type,
          .bits = 8,
          .symmetric = symmetric,
          .dynamic = dynamic,
          .granularity = dynamic ? ActivationGranularity::kToken : ActivationGranularity::kTensor,
          .group_size = 0};
}

std::vector<ActivationScheme> IntActivations() {
  return {EightBits(ActivationType::kInt, true, true), EightBits(ActivationType::kInt, false, true),
          EightBits(ActivationType::kInt, true, false),
          EightBits(ActivationType::kInt, false, false)};
}

// How scales lie over the weights.
struct Scales {
  Granularity granularity;
  uint64_t group_size;
  uint64_t rows;
};

Scheme Make(CodeType code, const Scales& scales, bool symmetric,
            const ActivationScheme& activations) {
  return {.code = code,
          .bits = CodeBits(code),
          .granularity = scales.granularity,
          .group_size = scales.group_size,
          .scale_rows = scales.rows,
          .symmetric = symmetric,
          .activations = activations};
}

// A byte that is a code: no NaN for FP8.
std::byte RandomCodes(CodeType code, SplitMix64& random) {
  while (true) {
    const auto bits = static_cast<unsigned>(random.Below(256));
    if (code != CodeType::kF8E4M3 || (bits & 0x7FU) != 0x7F) return static_cast<std::byte>(bits);
  }
}

// A finite bf16 number of moderate size.
uint16_t RandomWeight(SplitMix64& random) {
  const auto bits = static_cast<uint16_t>(random.Below(1 << 16));
  return static_cast<uint16_t>((bits & 0xBFFFU) | 0x2000U);
}

// Of both signs, of many magnitudes, and with more digits than 16 bits hold.
float RandomScale(SplitMix64& random) {
  const auto magnitude = static_cast<float>(1 + random.Below(1 << 20)) * 0x1p-24F;
  return random.Below(4) == 0 ? -magnitude : magnitude;
}

// A scale of MXFP4 that suits every code.
float RandomPower(SplitMix64& random) {
  return std::ldexp(1.0F, static_cast<int>(random.Below(251)) - 125);
}

// A scale that FP8 holds, as those of NVFP4 are.
float RandomF8Scale(SplitMix64& random) {
  return F8E4M3ToF32(static_cast<uint8_t>(1 + random.Below(0x7E)));
}

void AppendCodes(const PackRequest& request, SplitMix64& random, std::vector<std::byte>& codes) {
  const CodeType code = request.scheme.code;
  const PanelRange all{.n0 = 0, .rows = request.n, .k0 = 0, .cols = request.k};
  codes.resize(PanelBytes(code, all));
  if (code == CodeType::kBF16) {
    for (size_t i = 0; i < codes.size(); i += 2) {
      const uint16_t weight = RandomWeight(random);
      std::memcpy(&codes[i], &weight, sizeof weight);
    }
    return;
  }
  const bool half_unused = IsNibble(code) && request.k % 2 != 0;
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = RandomCodes(code, random);
    const bool last_of_row = (i + 1) % PanelRowBytes(code, request.k) == 0;
    if (half_unused && last_of_row) codes[i] &= std::byte{0x0F};
  }
}

}  // namespace

namespace {

// What formats of checkpoints are tested with, too.
std::vector<Scheme> CommonProbeSchemes(uint64_t n, uint64_t k, uint64_t group_size) {
  const Scales groups{group_size == k ? Granularity::kChannel : Granularity::kGroup, group_size, 1};
  const Scales channels{Granularity::kChannel, k, 1};
  const Scales tensor{Granularity::kTensor, k, n};
  const Scales blocks{Granularity::kBlock, 128, 32};
  const ActivationScheme dynamic_fp8 = EightBits(ActivationType::kFloat, true, true);

  std::vector<Scheme> schemes;
  for (const bool symmetric : {true, false}) {
    schemes.push_back(Make(CodeType::kU4, groups, symmetric, kWide));
  }
  for (const bool symmetric : {true, false}) {
    schemes.push_back(Make(CodeType::kU4, groups, symmetric, IntActivations().front()));
  }
  for (const ActivationScheme& activations : IntActivations()) {
    schemes.push_back(Make(CodeType::kS8, channels, true, activations));
  }
  schemes.push_back(Make(CodeType::kS8, tensor, true, IntActivations().front()));
  for (const ActivationScheme& activations : {kWide, dynamic_fp8}) {
    for (const Scales& scales : {blocks, channels, tensor}) {
      schemes.push_back(Make(CodeType::kF8E4M3, scales, true, activations));
    }
  }
  schemes.push_back(Make(CodeType::kBF16, tensor, true, kWide));
  // MXFP4, whose groups always have this size.
  schemes.push_back(Make(CodeType::kF4E2M1, {Granularity::kGroup, 32, 1}, true, kWide));
  return schemes;
}

}  // namespace

std::vector<Scheme> ProbeSchemes(uint64_t n, uint64_t k, uint64_t group_size) {
  std::vector<Scheme> schemes = CommonProbeSchemes(n, k, group_size);
  // Of layouts that take no groups; those that do take one scale per output channel, not per
  // tensor.
  schemes.push_back(
      Make(CodeType::kU4, {Granularity::kTensor, k, n}, true, IntActivations().front()));
  return schemes;
}

std::vector<Scheme> CheckpointProbeSchemes(uint64_t n, uint64_t k, uint64_t group_size) {
  const Scales groups{Granularity::kGroup, group_size, 1};
  const Scales blocks{Granularity::kBlock, 128, 128};
  const auto floats = [](uint32_t bits, ActivationGranularity granularity, uint64_t size) {
    ActivationScheme activations = EightBits(ActivationType::kFloat, true, true);
    activations.bits = bits;
    activations.granularity = granularity;
    activations.group_size = size;
    return activations;
  };
  std::vector<Scheme> schemes = CommonProbeSchemes(n, k, group_size);
  for (const uint32_t bits : {2U, 3U, 8U}) {
    for (const bool symmetric : {true, false}) {
      schemes.push_back(Make(UnsignedCodeFor(bits), groups, symmetric, kWide));
      schemes.back().bits = bits;
    }
  }
  for (const ActivationScheme& activations :
       {kWide, floats(8, ActivationGranularity::kGroup, 128)}) {
    schemes.push_back(Make(CodeType::kF8E4M3, blocks, true, activations));
  }
  schemes.push_back(Make(CodeType::kF8E4M3, {Granularity::kTensor, k, n}, true,
                         EightBits(ActivationType::kFloat, true, false)));
  const auto mx = floats(8, ActivationGranularity::kGroup, 32);
  schemes.push_back(Make(CodeType::kF8E4M3, {Granularity::kGroup, 32, 1}, true, mx));
  // NVFP4.
  const auto nv = floats(4, ActivationGranularity::kGroup, 16);
  for (const ActivationScheme& activations : {kWide, nv}) {
    schemes.push_back(Make(CodeType::kF4E2M1, {Granularity::kGroup, 16, 1}, true, activations));
  }
  return schemes;
}

namespace {

float ScaleFor(const Scheme& scheme, SplitMix64& random) {
  const bool small_groups = scheme.granularity == Granularity::kGroup;
  if (scheme.code == CodeType::kF4E2M1 && scheme.group_size == 16) return RandomF8Scale(random);
  const bool powers =
      scheme.code == CodeType::kF4E2M1 || (scheme.code == CodeType::kF8E4M3 && small_groups);
  return powers ? RandomPower(random) : RandomScale(random);
}

}  // namespace

Probe MakeProbe(const PackRequest& request, SplitMix64& random) {
  Probe probe;
  AppendCodes(request, random, probe.codes);
  const uint64_t groups = request.groups();
  for (uint64_t i = 0; i < request.n * groups; ++i) {
    const uint64_t row_in_block = i / groups % request.scheme.scale_rows;
    const float scale = ScaleFor(request.scheme, random);
    // Output channels that share a scale have the same.
    probe.scales.push_back(row_in_block == 0 ? scale : probe.scales[i - groups]);
    // The first zero points are the extremes, the others anything.
    const uint64_t most = std::min(uint64_t{15}, (uint64_t{1} << request.scheme.bits) - 1);
    const uint64_t zero_point = i == 0 ? 0 : i == 1 ? most : random.Below(most + 1);
    probe.zero_points.push_back(request.scheme.symmetric ? ZeroOfSymmetric(request.scheme)
                                                         : static_cast<uint8_t>(zero_point));
  }
  return probe;
}

PackJob WholeModule(const PackRequest& request, const Probe& probe) {
  const PanelRange all{.n0 = 0, .rows = request.n, .k0 = 0, .cols = request.k};
  return {.request = request,
          .tile = all,
          .panel = all,
          .zero_points = probe.zero_points,
          .scales = probe.scales,
          .bias = probe.bias};
}

std::vector<std::byte> PackWhole(const Layout& layout, const PackRequest& request,
                                 const Probe& probe, PartRole role) {
  const PackJob job = WholeModule(request, probe);
  std::vector<std::byte> packed;
  switch (role) {
    case PartRole::kWeight:
      packed.resize(PlacedBytes(layout.place_weight(request, job.tile)));
      layout.pack_codes(job, probe.codes, packed);
      break;
    case PartRole::kScale:
      packed.resize(PlacedBytes(PlaceParameters(layout, request, role, 0, request.n)));
      // A scale that does not fit is written all the same; the caller's scales say whether it may.
      static_cast<void>(PackScales(layout, request, request.n, probe.scales, packed));
      break;
    case PartRole::kZeroPoint:
      packed.resize(PlacedBytes(PlaceParameters(layout, request, role, 0, request.n)));
      PackZeroPoints(layout, request, request.n, probe.zero_points, packed);
      break;
    default:
      break;
  }
  return packed;
}

namespace {

// 96 = 3 · 32 output and 160 = 5 · 32 input channels: no powers of two, and multiples of the block
// of nearly every layout. Groups of 32 make five of them.
constexpr uint64_t kProbeN = 96;
constexpr uint64_t kProbeK = 160;
// 5 · 64 and 3 · 128, for layouts that take no 160.
constexpr std::array<uint64_t, 2> kWideProbeK = {320, 384};
constexpr uint64_t kProbeGroup = 32;
constexpr uint64_t kProbeSeed =
    20240914;  // any fixed number; changing it changes every fingerprint

void HashModule(const Layout& layout, const PackRequest& request, Xxh3Hasher& hasher) {
  SplitMix64 random(kProbeSeed);
  const Probe probe = MakeProbe(request, random);
  for (const PartSpec& part : layout.Parts(request)) {
    hasher.Update(
        fmt::format("{} {} [{}]\n", part.name, DTypeName(part.dtype), fmt::join(part.shape, ",")));
    hasher.Update(PackWhole(layout, request, probe, part.role));
  }
}

// How many modules of K input channels the layout took.
size_t HashModules(const Layout& layout, uint64_t k, Xxh3Hasher& hasher) {
  const auto schemes = layout.checkpoint ? CheckpointProbeSchemes : ProbeSchemes;
  size_t taken = 0;
  for (const Scheme& scheme : schemes(kProbeN, k, kProbeGroup)) {
    for (const DType activations : {DType::kBF16, DType::kF16}) {
      PackRequest request;
      request.scheme = scheme;
      request.n = kProbeN;
      request.k = k;
      request.activation_dtype = activations;
      request.stored_scale_dtype = DType::kF32;
      SetModuleKind(layout, request);
      if (!layout.eligible(request).ok) continue;
      HashModule(layout, request, hasher);
      ++taken;
    }
  }
  return taken;
}

}  // namespace

std::string PackingFingerprint(const Layout& layout) {
  Xxh3Hasher hasher;
  size_t taken = HashModules(layout, kProbeK, hasher);
  for (const uint64_t k : kWideProbeK) {
    if (taken == 0) taken = HashModules(layout, k, hasher);
  }
  return hasher.HexDigest();
}

}  // namespace prepack
