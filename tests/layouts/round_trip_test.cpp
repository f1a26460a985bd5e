// Properties of packing and unpacking that hold for every layout in the table.

#include "base/float_convert.h"
#include "base/isa.h"
#include "base/random.h"
#include "canonical/panel_shape.h"
#include "catch.h"
#include "layouts/requests.h"
#include "layouts/scale_convert.h"
#include "layouts/vllm_wna16.h"
#include "layouts/zentorch_woq.h"

namespace prepack {
namespace {

using testing::RequestsFor;

constexpr std::byte kPoison{0xA5};
constexpr size_t kGuard = 64;  // bytes behind a buffer that nobody may touch

std::vector<std::byte> RandomBytes(SplitMix64& random, size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(256));
  return bytes;
}

// A buffer of `count` bytes full of poison, with a guard behind it.
class Guarded {
 public:
  explicit Guarded(size_t count, std::byte poison = kPoison)
      : bytes_(count + kGuard, poison), count_(count), poison_(poison) {}
  std::span<std::byte> span() { return std::span(bytes_).first(count_); }
  bool GuardIsIntact() const {
    return std::all_of(bytes_.begin() + static_cast<std::ptrdiff_t>(count_), bytes_.end(),
                       [this](std::byte b) { return b == poison_; });
  }
  std::vector<std::byte> Copy() const {
    return {bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(count_)};
  }

 private:
  std::vector<std::byte> bytes_;
  size_t count_;
  std::byte poison_;
};

std::vector<std::byte> PackCodes(const Layout& layout, const PackRequest& request, Isa isa,
                                 const std::vector<std::byte>& panel, uint64_t rows) {
  // Twice, over different poison: a byte that nobody writes differs.
  const size_t count = layout.place(request, PartRole::kWeight, 0, rows).bytes();
  Guarded first(count);
  Guarded second(count, std::byte{0x5A});
  const StripPanel whole = {.rows = rows, .k0 = 0, .cols = request.k};
  layout.pack_codes(request, isa, whole, panel, first.span());
  layout.pack_codes(request, isa, whole, panel, second.span());
  CHECK(first.GuardIsIntact());
  CHECK(first.Copy() == second.Copy());
  return first.Copy();
}

TEST_CASE("unpack is the inverse of pack, and all instruction sets write the same bytes") {
  SplitMix64 random(1);
  for (const Layout& layout : AllLayouts()) {
    const std::vector<PackRequest> requests = RequestsFor(layout);
    REQUIRE(requests.size() > 20);
    for (const PackRequest& request : requests) {
      INFO(layout.id << " N " << request.n << " K " << request.k << " group "
                     << request.scheme.group_size << " symmetric " << request.scheme.symmetric);
      const std::vector<std::byte> panel = RandomBytes(random, request.n * request.k / 2);
      const std::vector<std::byte> scalar =
          PackCodes(layout, request, Isa::kScalar, panel, request.n);
      for (const Isa isa : SupportedIsas()) {
        CHECK(PackCodes(layout, request, isa, panel, request.n) == scalar);
        Guarded unpacked(panel.size());
        layout.unpack_codes(request, isa, {.rows = request.n, .k0 = 0, .cols = request.k}, scalar,
                            unpacked.span());
        CHECK(unpacked.GuardIsIntact());
        CHECK(unpacked.Copy() == panel);
      }
    }
  }
}

TEST_CASE("strips packed one by one give the bytes of the whole") {
  SplitMix64 random(2);
  for (const Layout& layout : AllLayouts()) {
    for (const PackRequest& request : RequestsFor(layout)) {
      const uint64_t step = 3 * layout.rows_multiple;
      const std::vector<std::byte> all = RandomBytes(random, request.n * request.k / 2);
      const std::vector<std::byte> whole = PackCodes(layout, request, Isa::kScalar, all, request.n);
      std::vector<std::byte> pieces(whole.size(), kPoison);
      for (uint64_t n0 = 0; n0 < request.n; n0 += step) {
        const uint64_t rows = std::min(step, request.n - n0);
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(n0 * request.k / 2);
        const std::vector<std::byte> panel(
            begin, begin + static_cast<std::ptrdiff_t>(rows * request.k / 2));
        const Placement place = layout.place(request, PartRole::kWeight, n0, rows);
        const std::vector<std::byte> packed =
            PackCodes(layout, request, SupportedIsas().back(), panel, rows);
        for (uint64_t run = 0; run < place.runs; ++run) {
          std::copy_n(
              packed.begin() + static_cast<std::ptrdiff_t>(run * place.run_bytes), place.run_bytes,
              pieces.begin() + static_cast<std::ptrdiff_t>(place.offset + run * place.stride));
        }
      }
      CHECK(pieces == whole);
    }
  }
}

// Columns [k0, k0 + cols) of a panel of whole rows.
std::vector<std::byte> Columns(const std::vector<std::byte>& rows, const PackRequest& request,
                               const StripPanel& range) {
  std::vector<std::byte> panel;
  for (uint64_t row = 0; row < range.rows; ++row) {
    const auto begin = rows.begin() + static_cast<std::ptrdiff_t>((row * request.k + range.k0) / 2);
    panel.insert(panel.end(), begin, begin + static_cast<std::ptrdiff_t>(range.cols / 2));
  }
  return panel;
}

TEST_CASE("panels of a strip packed one by one give the bytes of the strip, and back") {
  SplitMix64 random(5);
  size_t cuts = 0;
  for (const Layout& layout : AllLayouts()) {
    for (const PackRequest& request : RequestsFor(layout)) {
      const std::vector<std::byte> all = RandomBytes(random, request.n * request.k / 2);
      const std::vector<std::byte> whole = PackCodes(layout, request, Isa::kScalar, all, request.n);
      for (const Isa isa : SupportedIsas()) {
        std::vector<std::byte> packed(whole.size(), kPoison);
        for (uint64_t k0 = 0; k0 < request.k; k0 += kPanelColsMultiple) {
          const StripPanel range = {
              .rows = request.n, .k0 = k0, .cols = std::min(kPanelColsMultiple, request.k - k0)};
          const std::vector<std::byte> panel = Columns(all, request, range);
          layout.pack_codes(request, isa, range, panel, packed);
          Guarded unpacked(panel.size());
          layout.unpack_codes(request, isa, range, whole, unpacked.span());
          CHECK(unpacked.GuardIsIntact());
          CHECK(unpacked.Copy() == panel);
          cuts += range.cols < request.k ? 1 : 0;
        }
        CHECK(packed == whole);
      }
    }
  }
  CHECK(cuts > 100);
}

TEST_CASE("scales and zero points come back") {
  SplitMix64 random(3);
  for (const Layout& layout : AllLayouts()) {
    for (const PackRequest& request : RequestsFor(layout)) {
      const size_t count = request.n * request.groups();
      std::vector<float> scales;
      std::vector<uint8_t> zero_points;
      for (size_t i = 0; i < count; ++i) {
        // Of both signs, and far from what f16 cannot hold.
        const auto magnitude = static_cast<float>(0.01 + random.Uniform());
        scales.push_back(random.Below(2) == 0 ? magnitude : -magnitude);
        zero_points.push_back(static_cast<uint8_t>(random.Below(16)));
      }
      Guarded packed(layout.place(request, PartRole::kScale, 0, request.n).bytes());
      REQUIRE(layout.pack_scales(request, request.n, scales, packed.span()).ok());
      CHECK(packed.GuardIsIntact());
      std::vector<float> unpacked(count);
      layout.unpack_scales(request, request.n, packed.span(), unpacked);
      const DType dtype = ScaleDType(layout, request);
      for (float& scale : scales) scale = RoundScale(dtype, scale);
      CHECK(unpacked == scales);

      if (request.scheme.symmetric) continue;
      Guarded zeros(layout.place(request, PartRole::kZeroPoint, 0, request.n).bytes());
      layout.pack_zero_points(request, request.n, zero_points, zeros.span());
      CHECK(zeros.GuardIsIntact());
      std::vector<uint8_t> back(count);
      layout.unpack_zero_points(request, request.n, zeros.span(), back);
      CHECK(back == zero_points);
    }
  }
}

unsigned NibbleAt(const std::vector<std::byte>& bytes, uint64_t nibble) {
  const auto byte = std::to_integer<unsigned>(bytes[nibble / 2]);
  return nibble % 2 == 0 ? byte & 15U : byte >> 4;
}

TEST_CASE("every nibble lies where the closed form says") {
  SplitMix64 random(4);
  PackRequest request;
  request.scheme = {.group_size = 32, .symmetric = true};
  request.n = 96;
  request.k = 160;
  const std::vector<std::byte> panel = RandomBytes(random, request.n * request.k / 2);
  for (const Isa isa : SupportedIsas()) {
    const std::vector<std::byte> wna16 = PackCodes(kVllmWna16, request, isa, panel, request.n);
    const std::vector<std::byte> woq = PackCodes(kZentorchWoq, request, isa, panel, request.n);
    for (uint64_t n = 0; n < request.n; ++n) {
      for (uint64_t k = 0; k < request.k; ++k) {
        const unsigned code = PanelCode(request.scheme.code, panel, request.k, n, k);
        REQUIRE(NibbleAt(wna16, Wna16WeightNibble(n, k, request.k)) == code);
        REQUIRE(NibbleAt(woq, WoqWeightNibble(n, k, request.k)) == (code ^ 8U));
      }
    }
  }
}

}  // namespace
}  // namespace prepack
