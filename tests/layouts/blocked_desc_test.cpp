#include "layouts/blocked_desc.h"

#include "catch.h"
#include "layouts/requests.h"

namespace prepack {
namespace {

using testing::MakeDesc;
using testing::OtherDescs;

constexpr uint64_t kK = 10;
constexpr uint64_t kN = 7;

// Ba4b2a: blocks of 4 output by 2 input channels.
BlockedDesc Good() {
  return MakeDesc(kK, kN, {{.dim = 1, .size = 4}, {.dim = 0, .size = 2}}, true, true);
}

std::string Verdict(void (*edit)(BlockedDesc&)) {
  BlockedDesc desc = Good();
  edit(desc);
  const Status status = CheckBlockedDesc(desc, kK, kN);
  if (!status.ok()) CHECK(status.kind() == ErrorKind::kMalformed);
  return status.ToString();
}

TEST_CASE("sound descriptors pass") {
  CHECK(Verdict([](BlockedDesc&) {}).empty());
  for (const uint64_t n : {1U, 7U, 64U, 100U}) {
    for (const uint64_t k : {1U, 10U, 64U, 130U}) {
      for (const BlockedDesc& desc : OtherDescs(k, n)) {
        INFO(desc.Name());
        CHECK(CheckBlockedDesc(desc, k, n).ok());
      }
    }
  }
}

TEST_CASE("descriptors of another matrix are refused") {
  CHECK(Verdict([](BlockedDesc& d) {
          d.dims = {kN, kK};
        }) == "memory descriptor: field \"dims\" is not usable (found [7, 10], expected [10, 7])");
}

TEST_CASE("inner blocks are bounded") {
  CHECK(Verdict([](BlockedDesc& d) { d.inner.assign(9, {.dim = 0, .size = 1}); }) ==
        "memory descriptor: field \"inner_blocks\" is not usable (found 9 of them, expected at "
        "most 8)");
  CHECK(Verdict([](BlockedDesc& d) { d.inner[0].dim = 2; }) ==
        "memory descriptor: field \"inner_blocks\" is not usable (found 4 along dimension 2, "
        "expected 1 to 4096 along 0 or 1)");
  CHECK(Verdict([](BlockedDesc& d) { d.inner[1].size = 0; }) ==
        "memory descriptor: field \"inner_blocks\" is not usable (found 0 along dimension 0, "
        "expected 1 to 4096 along 0 or 1)");
  CHECK(Verdict([](BlockedDesc& d) { d.inner[1].size = 4097; }) ==
        "memory descriptor: field \"inner_blocks\" is not usable (found 4097 along dimension 0, "
        "expected 1 to 4096 along 0 or 1)");
}

TEST_CASE("the padded matrix is the smallest of whole blocks") {
  CHECK(Verdict([](BlockedDesc& d) { d.padded_dims[1] = 7; }) ==
        "memory descriptor: field \"padded_dims\" is not usable (found 7, expected 7 rounded up to "
        "its block of 4)");
  CHECK(Verdict([](BlockedDesc& d) { d.padded_dims[0] = 12; }) ==
        "memory descriptor: field \"padded_dims\" is not usable (found 12, expected 10 rounded up "
        "to its block of 2)");
  // Blocks that are small one by one, and huge together.
  CHECK(Verdict([](BlockedDesc& d) {
          d.inner = {{.dim = 0, .size = 4096}, {.dim = 0, .size = 2}};
          d.padded_dims[0] = 8192;
        }) ==
        "memory descriptor: field \"padded_dims\" is not usable (found 8192, expected 10 rounded "
        "up to its block of 8192)");
}

TEST_CASE("strides lead from block to block without overlap or holes") {
  CHECK(Verdict([](BlockedDesc& d) { d.strides = {16, 8}; }).empty());  // [K, N] of blocks
  CHECK(Verdict([](BlockedDesc& d) {
          d.strides = {8, 32};
        }) ==
        "memory descriptor: field \"strides\" is not usable (found [8, 32], expected one of 8, the "
        "other covering all blocks beside it)");
  CHECK(Verdict([](BlockedDesc& d) {
          d.strides = {8, 48};
        }) ==
        "memory descriptor: field \"strides\" is not usable (found [8, 48], expected one of 8, the "
        "other covering all blocks beside it)");
  CHECK(Verdict([](BlockedDesc& d) {
          d.strides = {0, 0};
        }) ==
        "memory descriptor: field \"strides\" is not usable (found [0, 0], expected one of 8, the "
        "other covering all blocks beside it)");
}

TEST_CASE("descriptors have oneDNN's names") {
  CHECK(PlainDesc(kK, kN).Name() == "ab");
  CHECK(MakeDesc(kK, kN, {}, true, false).Name() == "ba");
  CHECK(Ba16a64b4aDesc(kK, kN).Name() == "BA16a64b4a");
  CHECK(Good().Name() == "BA4b2a");
  CHECK(MakeDesc(kK, kN, {{.dim = 1, .size = 16}}, true, false).Name() == "Ba16b");
  CHECK(Ba16a64b4aDesc(128, 64).Name() == "BA16a64b4a");
  CHECK(Ba16a64b4aDesc(64, 128).Name() == "BA16a64b4a");
  CHECK(PlainDesc(kK, 1).Name() == "ab");  // strides [1, 1]
  CHECK(MakeDesc(1, kN, {}, true, false).Name() == "ba");
  CHECK(MakeDesc(64, kN, {{.dim = 0, .size = 4}}, false, false).Name() == "Ab4a");
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
}  // namespace prepack
