// The layouts of checkpoint formats: their bytes as the formats' writers have them, and unpacking
// as the inverse of packing for every width.

#include <cstring>
#include <vector>

#include "catch.h"
#include "prepack/base/checked.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/random.h"
#include "prepack/kernels/codes.h"
#include "prepack/layouts/parameters.h"
#include "prepack/layouts/table.h"
#include "requests.h"

namespace prepack::testing {
namespace {

// A module of these codes; scales per group unless there is one.
PackRequest codesOf(CodeType code, uint32_t bits, uint64_t n, uint64_t k, uint64_t group_size) {
  PackRequest request;
  request.n = n;
  request.k = k;
  request.stored_scale_dtype = DType::kF32;
  request.scheme = {.code = code,
                    .bits = bits,
                    .granularity = group_size == k ? Granularity::kChannel : Granularity::kGroup,
                    .group_size = group_size,
                    .symmetric = true};
  return request;
}

std::vector<PackRequest> checkpointRequests() {
  std::vector<PackRequest> requests;
  for (const uint64_t n : {32U, 96U}) {
    for (const uint64_t k : {64U, 160U, 576U}) {
      for (const uint64_t group_size : {uint64_t{16}, uint64_t{32}, k}) {
        for (const uint32_t bits : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U}) {
          for (const bool symmetric : {true, false}) {
            requests.push_back(codesOf(UnsignedCodeFor(bits), bits, n, k, group_size));
            requests.back().scheme.symmetric = symmetric;
            requests.push_back(requests.back());
            requests.back().scheme.activations = {.type = ActivationType::kInt, .bits = 8};
          }
        }
        requests.push_back(codesOf(CodeType::kS8, 8, n, k, group_size));
        requests.push_back(codesOf(CodeType::kF4E2M1, 4, n, k, group_size));
      }
      requests.push_back(codesOf(CodeType::kF8E4M3, 8, n, k, 32));  // MXFP8
      requests.back().scheme.activations = {.type = ActivationType::kFloat, .bits = 8};
      requests.push_back(codesOf(CodeType::kF8E4M3, 8, n, k, k));
      requests.push_back(requests.back());
      requests.back().scheme.activations = {.type = ActivationType::kFloat, .bits = 8};
      requests.push_back(requests.back());
      requests.back().scheme.granularity = Granularity::kTensor;
      requests.back().scheme.scale_rows = n;
      requests.push_back(codesOf(CodeType::kF8E4M3, 8, n, k, 128));
      requests.back().scheme.granularity = Granularity::kBlock;
      requests.back().scheme.scale_rows = 128;
    }
  }
  return requests;
}

std::vector<PackRequest> takenBy(const Layout& layout) {
  std::vector<PackRequest> taken;
  for (PackRequest request : checkpointRequests()) {
    SetModuleKind(layout, request);
    if (layout.Takes(request).ok) taken.push_back(request);
  }
  return taken;
}

// Codes of the scheme's bits.
std::vector<std::byte> randomCodes(const PackRequest& request, SplitMix64& random) {
  const Scheme& scheme = request.scheme;
  std::vector<std::byte> codes(
      PanelBytes(scheme.code, {.n0 = 0, .rows = request.n, .k0 = 0, .cols = request.k}));
  const uint64_t one = (uint64_t{1} << scheme.bits) - 1;
  for (std::byte& byte : codes) {
    const uint64_t low = random.Below(256) & one;
    const uint64_t high = random.Below(256) & one;
    byte = static_cast<std::byte>(IsNibble(scheme.code) ? low | high << 4 : low);
  }
  return codes;
}

// Packs the weight tile by tile, and unpacks each panel again.
std::vector<std::byte> packAndUnpack(const Layout& layout, const PackRequest& request,
                                     const std::vector<std::byte>& codes, bool strips) {
  const TileShape shape = SmallTiles(layout, request, strips);
  const TileGrid grid(request.n, request.k, shape);
  const PartSpec weight = *FindPart(layout.Parts(request), PartRole::kWeight);
  std::vector<std::byte> part(TensorBytes(weight.dtype, weight.shape).value());
  for (size_t i = 0; i < grid.size(); ++i) {
    const PanelRange tile = grid.At(i);
    const Placement placement = layout.place_weight(request, tile);
    std::vector<std::byte> packed(PlacedBytes(placement), std::byte{0xA5});
    static_cast<void>(ForPanels(tile, shape, [&](const PanelRange& panel) -> Status {
      layout.pack_codes({.request = request, .tile = tile, .panel = panel},
                        PanelOf(request, codes, panel), packed);
      return {};
    }));
    static_cast<void>(ForPanels(tile, shape, [&](const PanelRange& panel) -> Status {
      const std::vector<std::byte> expected = PanelOf(request, codes, panel);
      std::vector<std::byte> found(expected.size());
      layout.unpack_codes({.request = request, .tile = tile, .panel = panel}, packed, found);
      CHECK(found == expected);
      return {};
    }));
    Place(placement, packed, part);
  }
  return part;
}

TEST_CASE("checkpoint layouts: unpacking codes is the inverse of packing, however they are cut") {
  SplitMix64 random(7);
  for (const Layout& layout : CheckpointLayouts()) {
    const std::vector<PackRequest> requests = takenBy(layout);
    INFO(layout.id);
    CHECK_FALSE(requests.empty());
    for (const PackRequest& request : requests) {
      INFO(Name(layout, request));
      const std::vector<std::byte> codes = randomCodes(request, random);
      const std::vector<std::byte> whole = packAndUnpack(layout, request, codes, true);
      CHECK(packAndUnpack(layout, request, codes, false) == whole);
    }
  }
}

// Scales that the layout holds exactly.
float scaleFor(const Layout& layout, const PackRequest& request, const GlobalScale& global,
               SplitMix64& random) {
  const DType value = layout.scales.value.Of(request);
  if (value == DType::kF8E8M0) return F8E8M0ToF32(static_cast<uint8_t>(random.Below(255)));
  if (value == DType::kF8E4M3) {
    return global.Apply(F8E4M3ToF32(static_cast<uint8_t>(1 + random.Below(0x7E))));
  }
  return RoundTo(value, static_cast<float>(1 + random.Below(1 << 20)) * 0x1p-26F);
}

TEST_CASE("checkpoint layouts: scales come back to the bit, those that rows share once") {
  SplitMix64 random(8);
  for (const Layout& layout : CheckpointLayouts()) {
    const GlobalScale global{.value = 1337.5F, .divides = layout.scales.global_divides};
    for (const PackRequest& request : takenBy(layout)) {
      INFO(Name(layout, request));
      const uint64_t groups = request.groups();
      std::vector<float> scales;
      for (uint64_t i = 0; i < request.n * groups; ++i) {
        const bool shared = i / groups % request.scheme.scale_rows != 0;
        scales.push_back(shared ? scales[i - groups] : scaleFor(layout, request, global, random));
      }
      const Placement placement = PlaceParameters(layout, request, PartRole::kScale, 0, request.n);
      std::vector<std::byte> packed(PlacedBytes(placement));
      const PartSpec part = *FindPart(layout.Parts(request), PartRole::kScale);
      CHECK(packed.size() == TensorBytes(part.dtype, part.shape).value());
      REQUIRE(PackScales(layout, request, request.n, scales, packed, global).ok());
      std::vector<float> found(scales.size());
      UnpackScales(layout, request, request.n, packed, found, global);
      CHECK(found == scales);
    }
  }
}

TEST_CASE("checkpoint layouts: a scale that the dtype does not hold is refused with its place") {
  PackRequest request = codesOf(CodeType::kU4, 4, 32, 64, 32);
  std::vector<float> scales(64, 0.5F);
  scales[35] = 0.1F;
  std::vector<std::byte> packed(128);
  const Status status = PackScales(kGptqV1, request, 32, scales, packed);
  REQUIRE_FALSE(status.ok());
  CHECK(status.kind() == ErrorKind::kUnsupported);
  CHECK(status.ToString().find("scale of row 17, group 1") != std::string::npos);
  request.stored_scale_dtype = DType::kF16;  // then it is the source's own value
  scales[35] = RoundTo(DType::kF16, 0.1F);
  CHECK(PackScales(kGptqV1, request, 32, scales, packed).ok());
}

TEST_CASE("checkpoint layouts: zero points come back in strips of any size") {
  SplitMix64 random(9);
  for (const Layout& layout : CheckpointLayouts()) {
    if (layout.zero_points.form == nullptr) continue;
    for (const PackRequest& request : takenBy(layout)) {
      const auto part = FindPart(layout.Parts(request), PartRole::kZeroPoint);
      if (part == nullptr) continue;
      INFO(Name(layout, request));
      const uint64_t least = layout.zero_points.form->least;
      const uint64_t step = layout.cut(request).strip_rows;
      std::vector<uint8_t> zeros;
      for (uint64_t i = 0; i < request.n * request.groups(); ++i) {
        const uint64_t any = least + random.Below((uint64_t{1} << request.scheme.bits) - least);
        const bool plain = request.scheme.symmetric || request.scheme.code == CodeType::kS8;
        zeros.push_back(plain ? ZeroOfSymmetric(request.scheme) : static_cast<uint8_t>(any));
      }
      for (uint64_t n0 = 0; n0 < request.n; n0 += step) {
        const uint64_t rows = std::min(step, request.n - n0);
        const std::span<const uint8_t> strip =
            std::span(zeros).subspan(n0 * request.groups(), rows * request.groups());
        std::vector<std::byte> packed(
            PlacedBytes(PlaceParameters(layout, request, PartRole::kZeroPoint, n0, rows)));
        PackZeroPoints(layout, request, rows, strip, packed);
        std::vector<uint8_t> found(strip.size());
        UnpackZeroPoints(layout, request, rows, packed, found);
        CHECK(found == std::vector<uint8_t>(strip.begin(), strip.end()));
      }
    }
  }
}

// The words of a packed weight of output channels that all have codes 0, 1, 2, … along K.
std::vector<uint32_t> wordsOfCounting(const Layout& layout, uint32_t bits, uint64_t n, uint64_t k) {
  const PackRequest request = codesOf(UnsignedCodeFor(bits), bits, n, k, k);
  std::vector<std::byte> codes(
      PanelBytes(request.scheme.code, {.n0 = 0, .rows = n, .k0 = 0, .cols = k}));
  for (uint64_t i = 0; i < n * k; ++i) {
    const uint64_t code = i % k % (uint64_t{1} << bits);
    const bool nibble = IsNibble(request.scheme.code);
    codes[nibble ? i / 2 : i] |= static_cast<std::byte>(nibble && i % 2 != 0 ? code << 4 : code);
  }
  const std::vector<std::byte> part = packAndUnpack(layout, request, codes, true);
  std::vector<uint32_t> words(part.size() / 4);
  std::memcpy(words.data(), part.data(), part.size());
  return words;
}

TEST_CASE("checkpoint layouts: words are those of the formats' own packers") {
  // compressed-tensors: along K, the first code lowest.
  CHECK(wordsOfCounting(kCtPacked, 4, 32, 64)[0] == 0x76543210U);
  CHECK(wordsOfCounting(kCtPacked, 2, 32, 64)[0] == 0xE4E4E4E4U);
  // Word-aligned: ten codes of 3 bits and two unused bits.
  CHECK(wordsOfCounting(kCtPackedAligned, 3, 32, 64)[0] == 0x08FAC688U);
  CHECK(wordsOfCounting(kCtPacked, 3, 32, 64)[0] == 0x88FAC688U);
  // GPTQ: rows of words, one for each output channel; 3 bits run on in the next row.
  const std::vector<uint32_t> four = wordsOfCounting(kGptqV1, 4, 32, 64);
  CHECK(four[0] == 0x76543210U);
  CHECK(four[31] == 0x76543210U);
  CHECK(four[32] == 0xFEDCBA98U);
  const std::vector<uint32_t> three = wordsOfCounting(kGptqV2, 3, 32, 64);
  CHECK(three[0] == 0x88FAC688U);
  CHECK(three[32] == 0xC688FAC6U);
  CHECK(three[64] == 0xFAC688FAU);
  CHECK(wordsOfCounting(kGptqV1, 8, 32, 64)[0] == 0x03020100U);
  // AWQ: a row for each input channel.
  const std::vector<uint32_t> awq = wordsOfCounting(kAwqGemm, 4, 32, 64);
  CHECK(awq[0] == 0x00000000U);
  CHECK(awq[4] == 0x11111111U);
}

std::vector<uint32_t> zeroWords(const Layout& layout, std::initializer_list<uint8_t> eight) {
  PackRequest request = codesOf(CodeType::kU4, 4, 8, 32, 32);
  request.scheme.symmetric = false;
  std::vector<std::byte> packed(4);
  PackZeroPoints(layout, request, 8, std::vector<uint8_t>(eight), packed);
  std::vector<uint32_t> words(1);
  std::memcpy(words.data(), packed.data(), 4);
  return words;
}

TEST_CASE("checkpoint layouts: zero points are stored as the formats have them") {
  CHECK(zeroWords(kGptqV2, {7, 0, 9, 15, 1, 0, 8, 3})[0] == 0x3801F907U);
  CHECK(zeroWords(kGptqV1, {8, 8, 8, 8, 8, 8, 8, 8})[0] == 0x77777777U);
  CHECK(zeroWords(kGptqV1, {16, 1, 2, 3, 4, 5, 6, 7})[0] == 0x6543210FU);
  CHECK(zeroWords(kCtPacked, {7, 0, 9, 15, 1, 0, 8, 3})[0] == 0x3801F907U);
  CHECK(zeroWords(kAwqGemm, {0, 1, 2, 3, 4, 5, 6, 7})[0] == 0x75316420U);
}

TEST_CASE("checkpoint layouts: what a format cannot say is refused by its rule") {
  PackRequest request = codesOf(CodeType::kU4, 4, 32, 64, 32);
  CHECK(kAwqGemm.Takes(request).ok);
  request.reordered = true;
  CHECK(kAwqGemm.Takes(request).reason ==
        "the module has activation order: AWQ has no index of groups");
  CHECK(kGptqV1.Takes(request).ok);
  request.reordered = false;
  request.facts.has_zero_of_zero = true;
  CHECK(kGptqV1.Takes(request).reason ==
        "a zero point is 0: version 1 of GPTQ stores zero points less one, 1 to 16 (target gptq-v2 "
        "stores them as they are)");
  CHECK(kGptqV2.Takes(request).ok);
  request.facts = {.has_zero_beyond = true};
  CHECK(kGptqV1.Takes(request).ok);
  CHECK(kCtPacked.Takes(request).reason ==
        "a zero point is 16: compressed-tensors stores zero points of 4 bits, up to 15");
  request.facts = {.has_scale_beyond_half = true};
  CHECK_FALSE(kAwqGemm.Takes(request).ok);
  CHECK(kCtPacked.Takes(request).ok);
  request.facts = {};
  request.scheme.activations.type = ActivationType::kInt;
  CHECK_FALSE(kGptqV1.Takes(request).ok);
  CHECK(kCtInt.Takes(request).ok);
  CHECK_FALSE(kCtPacked.Takes(request).ok);
}

TEST_CASE("a global scale of the other convention is the reciprocal") {
  const GlobalScale divides{.value = 3.0F, .divides = true};
  CHECK(PackedGlobalScale(kCtNvfp4, divides) == divides);
  CHECK(PackedGlobalScale(kModelOptNvfp4, divides) ==
        GlobalScale{.value = 1.0F / 3.0F, .divides = false});
  const float scale = divides.Apply(448.0F);
  CHECK(PackedScale(kCtNvfp4, divides, scale) == scale);
  CHECK(PackedScale(kModelOptNvfp4, divides, scale) == 448.0F * (1.0F / 3.0F));
}

TEST_CASE("numbers of FP8 are rounded to themselves, others to the nearest, ties to even") {
  for (unsigned bits = 0; bits < 256; ++bits) {
    if ((bits & 0x7FU) == 0x7F) continue;  // NaN
    CHECK(F32ToF8E4M3(F8E4M3ToF32(static_cast<uint8_t>(bits))) == bits);
  }
  CHECK(F8E4M3ToF32(F32ToF8E4M3(17.0F)) == 16.0F);  // between 16 and 18
  CHECK(F8E4M3ToF32(F32ToF8E4M3(19.0F)) == 20.0F);  // between 18 and 20
  CHECK(F8E4M3ToF32(F32ToF8E4M3(500.0F)) == 448.0F);
  CHECK(F32ToF8E4M3(0x1p-11F) == 0);
  CHECK(F32ToF8E4M3(-0x1.8p-10F) == 0x81);
}

}  // namespace
}  // namespace prepack::testing
