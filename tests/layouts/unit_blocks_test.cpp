#include "prepack/layouts/placement.h"

#include "catch.h"
#include "layouts/requests.h"
#include "prepack/base/isa.h"
#include "prepack/base/random.h"

namespace prepack::testing {
namespace {

std::vector<std::byte> RandomBytes(size_t count, uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.Below(256));
  return bytes;
}

PackRequest Bytes(uint64_t n, uint64_t k) {
  PackRequest request;
  request.scheme.code = CodeType::kS8;
  request.scheme.bits = 8;
  request.n = n;
  request.k = k;
  return request;
}

PackJob Whole(const PackRequest& request) {
  const PanelRange all{.n0 = 0, .rows = request.n, .k0 = 0, .cols = request.k};
  return {.request = request, .tile = all, .panel = all};
}

TEST_CASE("units of all channels of a block stand side by side") {
  // Two channels per block, units of two bytes, four bytes behind each block.
  const PackRequest request = Bytes(4, 4);
  const UnitBlocks blocks{.width = 2, .unit = 2, .units = 2, .block_bytes = 12};
  std::vector<std::byte> codes;
  for (const int value : {0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33}) {
    codes.push_back(static_cast<std::byte>(value));
  }
  std::vector<std::byte> packed(24, std::byte{99});
  PackUnits(Whole(request), blocks, codes, packed);
  std::vector<int> values;
  values.reserve(packed.size());
  for (const std::byte b : packed) values.push_back(std::to_integer<int>(b));
  CHECK(values == std::vector<int>{0,  1,  10, 11, 2,  3,  12, 13, 99, 99, 99, 99,
                                   20, 21, 30, 31, 22, 23, 32, 33, 99, 99, 99, 99});
  CHECK(blocks.Byte(0, 0) == 0);
  CHECK(blocks.Byte(1, 0) == 2);
  CHECK(blocks.Byte(0, 3) == 5);
  CHECK(blocks.Byte(3, 1) == 15);
}

// Packs panel by panel over poison and compares with Byte().
void CheckUnits(const PackRequest& request, const UnitBlocks& blocks, uint64_t panel_rows,
                uint64_t panel_cols) {
  const PanelRange tile{.n0 = 0, .rows = request.n, .k0 = 0, .cols = request.k};
  const std::vector<std::byte> codes = RandomBytes(request.n * request.k, request.n + request.k);
  const uint64_t block_count = CeilDiv(request.n, blocks.width);
  std::vector<std::byte> expected(block_count * blocks.block_bytes);
  for (uint64_t n = 0; n < request.n; ++n) {
    for (uint64_t k = 0; k < request.k; ++k) {
      expected[blocks.Byte(n, k)] = codes[n * request.k + k];
    }
  }
  std::vector<std::byte> packed(expected.size(), std::byte{0xA5});
  std::vector<std::byte> unpacked;
  const TileShape shape{
      .rows = request.n, .cols = request.k, .panel_rows = panel_rows, .panel_cols = panel_cols};
  static_cast<void>(ForPanels(tile, shape, [&](const PanelRange& panel) -> Status {
    const PackJob job{.request = request, .tile = tile, .panel = panel};
    PackUnits(job, blocks, PanelOf(request, codes, panel), packed);
    return {};
  }));
  CHECK(packed == expected);
  static_cast<void>(ForPanels(tile, shape, [&](const PanelRange& panel) -> Status {
    const PackJob job{.request = request, .tile = tile, .panel = panel};
    std::vector<std::byte> back(panel.rows * panel.cols, std::byte{0xA5});
    UnpackUnits(job, blocks, packed, back);
    CHECK(back == PanelOf(request, codes, panel));
    return {};
  }));
}

TEST_CASE("what is missing of the last block and the last units is zero, in panels, too") {
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    INFO(IsaName(isa));
    for (const uint64_t unit : {1U, 2U, 4U}) {
      for (const uint64_t width : {16U, 32U, 64U}) {
        for (const uint64_t n : {1U, 16U, 33U, 100U}) {
          for (const uint64_t k : {1U, 4U, 7U, 64U, 131U}) {
            INFO("unit " << unit << " width " << width << " N " << n << " K " << k);
            // One unit of padding more than needed.
            const uint64_t units = CeilDiv(k, unit) + 1;
            const UnitBlocks blocks{
                .width = width, .unit = unit, .units = units, .block_bytes = width * unit * units};
            const PackRequest request = Bytes(n, k);
            CheckUnits(request, blocks, n, k);
            CheckUnits(request, blocks, width, 8);
          }
        }
      }
    }
  }
}

TEST_CASE("the rows of a panel are summed on their way into blocks") {
  SplitMix64 random(5);
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    for (const uint64_t width : {16U, 32U, 48U, 64U}) {
      for (const uint64_t n : {1U, 32U, 100U}) {
        // One, some and all of the units that are summed at a time, with a rest and without.
        for (const uint64_t k : {1U, 4U, 7U, 256U, 1021U, 4096U}) {
          INFO(IsaName(isa) << " width " << width << " N " << n << " K " << k);
          const UnitBlocks blocks{
              .width = width, .unit = 4, .units = CeilDiv(k, 4), .block_bytes = width * (k + 3)};
          std::vector<std::byte> codes(n * k);
          std::vector<int32_t> expected(n, 77);
          for (uint64_t i = 0; i < n * k; ++i) {
            const auto code = static_cast<int8_t>(random.Below(256));
            codes[i] = static_cast<std::byte>(code);
            expected[i / k] += code;
          }
          std::vector<std::byte> packed(CeilDiv(n, width) * blocks.block_bytes);
          std::vector<int32_t> sums(n, 77);
          PackUnits(Whole(Bytes(n, k)), blocks, codes, packed, sums);
          CHECK(sums == expected);
        }
      }
    }
  }
}

TEST_CASE("sums of codes add up over panels, and wrap as in the kernels") {
  const PackRequest request = Bytes(2, 4);
  std::array<int32_t, 2> sums = {-77, 77};  // the first panel sets them
  const std::span<std::byte> out = std::as_writable_bytes(std::span(sums));
  PackJob job = Whole(request);
  job.panel.cols = 2;
  AddCodeSums(job, -128, std::array{3, -256}, out);
  CHECK(sums == std::array<int32_t, 2>{-384, 128 * 256});
  job.panel.k0 = 2;
  AddCodeSums(job, -128, std::array{7, 126}, out);
  CHECK(sums == std::array<int32_t, 2>{-1280, 128 * 130});
  job.panel.k0 = 0;
  AddCodeSums(job, 1 << 30, std::array{10, -130}, out);
  CHECK(sums == std::array<int32_t, 2>{INT32_MIN, INT32_MIN});  // 10 · 2^30 and −130 · 2^30
}

}  // namespace
}  // namespace prepack::testing
