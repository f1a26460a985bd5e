#include "prepack/layouts/blocked_desc.h"

#include "catch.h"
#include "layouts/requests.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

constexpr uint32_t kK = 0;
constexpr uint32_t kN = 1;

void CheckBad(const BlockedDesc& desc, std::string_view text) {
  CheckError(CheckBlockedDesc(desc, 70, 100), ErrorKind::kMalformed, text);
}

TEST_CASE("a memory descriptor has the name that oneDNN gives it") {
  CHECK(PlainDesc(70, 100).Name() == "ab");
  BlockedDesc columns = PlainDesc(70, 100);
  columns.strides = {1, 70};
  CHECK(columns.Name() == "ba");
  CHECK(Ba16a64b4aDesc(70, 100).Name() == "BA16a64b4a");
  BlockedDesc rows = Ba16a64b4aDesc(70, 100);
  rows.strides = {8192, 4096};
  CHECK(rows.Name() == "AB16a64b4a");
  const BlockedDesc half{
      .dims = {70, 100}, .padded_dims = {72, 100}, .strides = {400, 4}, .inner = {{kK, 4}}};
  CHECK(half.Name() == "Ab4a");
}

TEST_CASE("the name is right where a block is all of one dimension") {
  CHECK(Ba16a64b4aDesc(64, 100).Name() == "BA16a64b4a");
  CHECK(Ba16a64b4aDesc(70, 64).Name() == "BA16a64b4a");
  CHECK(Ba16a64b4aDesc(1, 1).Name() == "BA16a64b4a");
  BlockedDesc rows = Ba16a64b4aDesc(70, 64);
  rows.strides = {4096, 4096};
  CHECK(rows.Name() == "AB16a64b4a");
  CHECK(PlainDesc(70, 1).Name() == "ab");
  CHECK(PlainDesc(1, 1).Name() == "ab");
  CHECK(PlainDesc(1, 100).Name() == "ab");
}

TEST_CASE("a descriptor has to cover the matrix without overlap or holes") {
  const BlockedDesc good = Ba16a64b4aDesc(70, 100);
  RequireOk(CheckBlockedDesc(good, 70, 100));
  RequireOk(CheckBlockedDesc(PlainDesc(70, 100), 70, 100));
  CheckError(
      CheckBlockedDesc(good, 100, 70), ErrorKind::kMalformed,
      "memory descriptor: field \"dims\" is not usable (found [70, 100], expected [100, 70])");
  BlockedDesc bad = good;
  bad.padded_dims[kK] = 192;
  CheckBad(bad,
           "\"padded_dims\" is not usable (found 192, expected 70 rounded up to its block of 64)");
  bad = good;
  bad.padded_dims[kN] = 100;
  CheckBad(bad, "(found 100, expected 100 rounded up to its block of 64)");
  for (const auto& strides : {std::array<uint64_t, 2>{4096, 4096}, {8192, 8192}, {4096, 12288}}) {
    bad = good;
    bad.strides = strides;
    CheckBad(bad, "\"strides\" is not usable");
  }
}

TEST_CASE("inner blocks are checked before they are multiplied") {
  BlockedDesc bad = Ba16a64b4aDesc(70, 100);
  bad.inner[0].size = 0;
  CheckBad(bad, "\"inner_blocks\" is not usable (found 0 along dimension 0");
  bad.inner[0].size = 4097;
  CheckBad(bad, "found 4097 along dimension 0, expected 1 to 4096 in all along 0 or 1");
  bad.inner[0] = {.dim = 2, .size = 16};
  CheckBad(bad, "found 16 along dimension 2");
  bad = Ba16a64b4aDesc(70, 100);
  bad.inner[2].size = 257;  // 16 · 257 is too much
  CheckBad(bad, "found 257 along dimension 0");
  // 2^72, which is 0 in 64 bits.
  bad.inner = {};
  for (int i = 0; i < 6; ++i) bad.inner.push_back({.dim = kK, .size = 4096});
  CheckBad(bad, "found 4096 along dimension 0");
}

TEST_CASE("sizes of blocks are products of the inner ones") {
  const BlockedDesc desc = Ba16a64b4aDesc(70, 65);
  CHECK(desc.Block(0) == 64);
  CHECK(desc.Block(1) == 64);
  CHECK(desc.BlockElements() == 4096);
  CHECK(desc.padded_dims == std::array<uint64_t, 2>{128, 128});
  CHECK(desc.Elements() == 16384);
  CHECK(desc.strides == std::array<uint64_t, 2>{4096, 8192});
  CHECK(PlainDesc(kK, kN).BlockElements() == 1);
}

// The definition, from outside in: the block, then what the inner blocks before this one leave.
uint64_t NaiveElement(const BlockedDesc& desc, uint64_t k, uint64_t n) {
  uint64_t place = k / desc.Block(0) * desc.strides[0] + n / desc.Block(1) * desc.strides[1];
  std::array<uint64_t, 2> at = {k % desc.Block(0), n % desc.Block(1)};
  std::array<uint64_t, 2> left = {desc.Block(0), desc.Block(1)};
  for (const InnerBlock& block : desc.inner) {
    left[block.dim] /= block.size;
    const uint64_t index = at[block.dim] / left[block.dim];
    at[block.dim] %= left[block.dim];
    place += index * left[0] * left[1];
  }
  return place;
}

TEST_CASE("elements lie where the nested blocks put them, each at a place of its own") {
  for (const BlockedDesc& desc : OtherDescs(70, 100)) {
    INFO(desc.Name());
    std::vector<bool> taken(desc.Elements());
    for (uint64_t k = 0; k < desc.padded_dims[0]; ++k) {
      for (uint64_t n = 0; n < desc.padded_dims[1]; ++n) {
        const uint64_t element = desc.Element(k, n);
        REQUIRE(element == NaiveElement(desc, k, n));
        REQUIRE(element < taken.size());
        REQUIRE_FALSE(taken[element]);
        taken[element] = true;
      }
    }
  }
  CHECK(Ba16a64b4aDesc(128, 128).Element(0, 1) == 4);
  CHECK(Ba16a64b4aDesc(128, 128).Element(4, 0) == 256);
  CHECK(Ba16a64b4aDesc(128, 128).Element(64, 0) == 4096);
  CHECK(Ba16a64b4aDesc(128, 128).Element(0, 64) == 8192);
}

}  // namespace
}  // namespace prepack::testing
