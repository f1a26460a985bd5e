// Pieces of modules, and experts that are stored stacked as modules of their own.

#include "prepack/model/split_linear.h"

#include "model/fixed_linear.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

constexpr uint64_t kInputs = 8;

// Output channel n has codes n, n + 1, …, scale 1 + n and zero point n.
FixedLinear Counting(uint64_t n, Granularity granularity = Granularity::kChannel) {
  const Scheme scheme = {.code = CodeType::kU8,
                         .bits = 8,
                         .granularity = granularity,
                         .group_size = kInputs,
                         .scale_rows = granularity == Granularity::kBlock ? 4U : 1U,
                         .symmetric = false};
  std::vector<std::byte> codes(n * kInputs);
  std::vector<float> scales(n);
  std::vector<uint8_t> zero_points(n);
  for (uint64_t row = 0; row < n; ++row) {
    for (uint64_t k = 0; k < kInputs; ++k) codes[row * kInputs + k] = std::byte(row + k);
    scales[row] = static_cast<float>(1 + row);
    zero_points[row] = static_cast<uint8_t>(row);
  }
  return {scheme, n, kInputs, codes, scales, zero_points, {}};
}

// The output channels of the whole that a piece holds, by all that it delivers.
std::vector<uint64_t> ChannelsIn(const QuantizedLinear& piece, uint64_t n0, uint64_t rows) {
  const PanelRange range{.n0 = n0, .rows = rows, .k0 = 2, .cols = 4};
  std::vector<std::byte> codes(rows * range.cols);
  std::vector<float> scales(rows);
  std::vector<uint8_t> zero_points(rows);
  REQUIRE(piece.ReadCodes(range, codes).ok());
  REQUIRE(piece.ReadScales(n0, rows, scales).ok());
  REQUIRE(piece.ReadZeroPoints(n0, rows, zero_points).ok());
  std::vector<uint64_t> channels;
  for (uint64_t row = 0; row < rows; ++row) {
    const uint64_t channel = zero_points[row];
    for (uint64_t k = 0; k < range.cols; ++k) {
      CHECK(codes[row * range.cols + k] == std::byte(channel + 2 + k));
    }
    CHECK(scales[row] == static_cast<float>(1 + channel));
    channels.push_back(channel);
  }
  return channels;
}

using Channels = std::vector<uint64_t>;

TEST_CASE("halves of gate_up_proj become gate_proj and up_proj of one expert") {
  FixedLinear stored = Counting(8);
  stored.SetModule("m.mlp.experts.gate_up_proj.3");
  const auto pieces = SplitExpert(stored, false);
  REQUIRE(pieces.ok());
  REQUIRE(pieces->size() == 2);
  CHECK((*pieces)[0]->module() == "m.mlp.experts.3.gate_proj");
  CHECK((*pieces)[1]->module() == "m.mlp.experts.3.up_proj");
  CHECK(ChannelsIn(*(*pieces)[0], 0, 4) == Channels{0, 1, 2, 3});
  CHECK(ChannelsIn(*(*pieces)[1], 0, 4) == Channels{4, 5, 6, 7});
  CHECK(ChannelsIn(*(*pieces)[1], 1, 2) == Channels{5, 6});
}

TEST_CASE("channels that alternate are picked out") {
  FixedLinear stored = Counting(8);
  stored.SetModule("m.mlp.experts.gate_up_proj.0");
  const auto pieces = SplitExpert(stored, true);
  REQUIRE(pieces.ok());
  CHECK(ChannelsIn(*(*pieces)[0], 0, 4) == Channels{0, 2, 4, 6});
  CHECK(ChannelsIn(*(*pieces)[1], 0, 4) == Channels{1, 3, 5, 7});
  CHECK(ChannelsIn(*(*pieces)[1], 2, 2) == Channels{5, 7});
  std::vector<float> too_few(3);
  CheckError((*pieces)[0]->ReadScales(0, 4, too_few), ErrorKind::kUsage, "");
}

TEST_CASE("down_proj gets another name, and other modules are left alone") {
  FixedLinear stored = Counting(8);
  stored.SetModule("m.mlp.experts.down_proj.12");
  const auto pieces = SplitExpert(stored, true);
  REQUIRE(pieces.ok());
  REQUIRE(pieces->size() == 1);
  CHECK((*pieces)[0]->module() == "m.mlp.experts.12.down_proj");
  CHECK(ChannelsIn(*(*pieces)[0], 0, 8) == Channels{0, 1, 2, 3, 4, 5, 6, 7});
  stored.SetModule("m.mlp.experts.12.down_proj");
  CHECK(SplitExpert(stored, true)->empty());
  stored.SetModule("m.mlp.down_proj");
  CHECK(SplitExpert(stored, true)->empty());
}

TEST_CASE("one scale for all is one for each piece, and blocks are not cut") {
  const FixedLinear tensor = Counting(8, Granularity::kTensor);
  const auto half = ChooseChannels(tensor, "a", {.first = 4, .step = 1, .n = 4});
  REQUIRE(half.ok());
  CHECK((*half)->scheme().scale_rows == 4);

  const FixedLinear blocks = Counting(12, Granularity::kBlock);
  CHECK(ChooseChannels(blocks, "a", {.first = 4, .step = 1, .n = 8}).ok());
  const auto cut = ChooseChannels(blocks, "a", {.first = 6, .step = 1, .n = 6});
  CheckError(cut.status(), ErrorKind::kUnsupported,
             "6 of its output channels cannot become a module of their own: blocks of 4 channels "
             "share a scale");
  CHECK_FALSE(ChooseChannels(blocks, "a", {.first = 0, .step = 2, .n = 6}).ok());
}

}  // namespace
}  // namespace prepack::testing
