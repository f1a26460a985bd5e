#include "prepack/model/stacked_linear.h"

#include <numeric>

#include "model/fixed_linear.h"
#include "prepack/base/random.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

constexpr uint64_t kK = 12;

Scheme Grouped(CodeType code) {
  return {.code = code,
          .bits = CodeBits(code),
          .granularity = Granularity::kGroup,
          .group_size = 4,
          .symmetric = false};
}

// Random numbers in the given scheme.
FixedLinear Random(const Scheme& scheme, uint64_t n, uint64_t seed,
                   std::vector<uint32_t> order = {}) {
  SplitMix64 random(seed);
  std::vector<std::byte> codes(n * PanelRowBytes(scheme.code, kK));
  for (std::byte& code : codes) code = static_cast<std::byte>(random.Below(256));
  const uint64_t groups = CeilDiv(kK, scheme.group_size);
  std::vector<float> scales(n * groups);
  for (float& scale : scales) scale = static_cast<float>(1 + random.Below(100));
  std::vector<uint8_t> zero_points(n * groups);
  for (uint8_t& zero_point : zero_points) zero_point = static_cast<uint8_t>(random.Below(16));
  return {scheme, n, kK, codes, scales, zero_points, std::move(order)};
}

// Everything a module delivers, one output channel after another.
struct Contents {
  std::vector<std::byte> codes;
  std::vector<float> scales;
  std::vector<uint8_t> zero_points;

  friend bool operator==(const Contents&, const Contents&) = default;
};

Contents Read(const QuantizedLinear& linear, uint64_t n0, uint64_t rows, uint64_t k0 = 0,
              uint64_t cols = kK) {
  const PanelRange range{.n0 = n0, .rows = rows, .k0 = k0, .cols = cols};
  Contents contents{std::vector<std::byte>(PanelBytes(linear.scheme().code, range)),
                    std::vector<float>(rows * linear.groups()),
                    std::vector<uint8_t>(rows * linear.groups())};
  RequireOk(linear.ReadCodes(range, contents.codes));
  RequireOk(linear.ReadScales(n0, rows, contents.scales));
  RequireOk(linear.ReadZeroPoints(n0, rows, contents.zero_points));
  return contents;
}

void Append(const Contents& more, Contents& contents) {
  contents.codes.insert(contents.codes.end(), more.codes.begin(), more.codes.end());
  contents.scales.insert(contents.scales.end(), more.scales.begin(), more.scales.end());
  contents.zero_points.insert(contents.zero_points.end(), more.zero_points.begin(),
                              more.zero_points.end());
}

TEST_CASE("channels of a stacked module are those of its members, wherever they are cut") {
  for (const CodeType code : {CodeType::kU4, CodeType::kU8}) {
    const FixedLinear a = Random(Grouped(code), 5, 1);
    const FixedLinear b = Random(Grouped(code), 1, 2);
    const FixedLinear c = Random(Grouped(code), 3, 3);
    const auto whole = Value(Stack("m.abc", {&a, &b, &c}));
    CHECK(whole->module() == "m.abc");
    CHECK(whole->n() == 9);
    CHECK(whole->k() == kK);
    CHECK(whole->scheme() == Grouped(code));
    CHECK(std::vector(whole->members().begin(), whole->members().end()) ==
          std::vector<const QuantizedLinear*>{&a, &b, &c});
    for (uint64_t n0 = 0; n0 < 9; ++n0) {
      for (uint64_t rows = 0; rows <= 9 - n0; ++rows) {
        Contents expected;
        for (uint64_t n = n0; n < n0 + rows; ++n) {
          const QuantizedLinear& member = n < 5 ? a : n < 6 ? b : c;
          Append(Read(member, n < 5 ? n : n < 6 ? n - 5 : n - 6, 1, 4, 6), expected);
        }
        INFO(n0 << " + " << rows);
        CHECK(Read(*whole, n0, rows, 4, 6) == expected);
      }
    }
  }
}

// A module whose codes can be had by input channel: each byte says whose it is.
class ColumnLinear : public FixedLinear {
 public:
  ColumnLinear(uint64_t n, unsigned mark)
      : FixedLinear(Grouped(CodeType::kU4), n, kK, std::vector<std::byte>(n * kK / 2),
                    std::vector<float>(n * 3, 1), std::vector<uint8_t>(n * 3), {}),
        mark_(mark) {}
  bool HasColumns(const PanelRange& range) const override { return range.rows % 2 == 0; }
  Status ReadColumns(const PanelRange& range, std::span<std::byte> out) const override {
    std::ranges::fill(out, static_cast<std::byte>(mark_ * 16 + range.n0));
    return {};
  }

 private:
  unsigned mark_;
};

TEST_CASE("a stacked module has the columns of a member where it is asked for one member's") {
  const ColumnLinear a(4, 1);
  const ColumnLinear b(6, 2);
  const FixedLinear c = Random(Grouped(CodeType::kU4), 4, 3);
  const auto whole = Value(Stack("m", {&a, &b, &c}));
  const auto columns = [&](uint64_t n0, uint64_t rows) {
    const PanelRange range{.n0 = n0, .rows = rows, .k0 = 2, .cols = 2};
    std::vector<std::byte> out(rows);
    REQUIRE(whole->HasColumns(range));
    RequireOk(whole->ReadColumns(range, out));
    return out;
  };
  CHECK(columns(0, 4) == std::vector<std::byte>(4, std::byte{0x10}));
  CHECK(columns(6, 4) == std::vector<std::byte>(4, std::byte{0x22}));
  const PanelRange both{.n0 = 2, .rows = 4, .k0 = 2, .cols = 2};
  CHECK_FALSE(whole->HasColumns(both));
  std::vector<std::byte> out(4);
  CheckError(whole->ReadColumns(both, out), ErrorKind::kUsage, "by input channel");
  CHECK_FALSE(whole->HasColumns({.n0 = 4, .rows = 3, .k0 = 2, .cols = 2}));
  CHECK_FALSE(whole->HasColumns({.n0 = 10, .rows = 4, .k0 = 2, .cols = 2}));
}

TEST_CASE("what does not fit a stacked module is a usage error") {
  const FixedLinear a = Random(Grouped(CodeType::kU8), 2, 1);
  const auto whole = Value(Stack("m", {&a, &a}));
  std::vector<std::byte> codes(5 * kK);
  const auto read = [&](const PanelRange& range) { return whole->ReadCodes(range, codes); };
  CheckError(read({.n0 = 0, .rows = 5, .k0 = 0, .cols = kK}), ErrorKind::kUsage, "not fit");
  CheckError(read({.n0 = 5, .rows = 0, .k0 = 0, .cols = kK}), ErrorKind::kUsage, "not fit");
  CheckError(read({.n0 = 0, .rows = 4, .k0 = 0, .cols = kK}), ErrorKind::kUsage, "not fit");
  CheckError(read({.n0 = 0, .rows = 5, .k0 = 1, .cols = kK}), ErrorKind::kUsage, "not fit");
  std::vector<float> scales(5 * 3);
  CheckError(whole->ReadScales(0, 5, scales), ErrorKind::kUsage, "not fit");
  CheckError(whole->ReadScales(UINT64_MAX, 5, scales), ErrorKind::kUsage, "not fit");
  std::vector<uint8_t> zero_points(4);
  CheckError(whole->ReadZeroPoints(0, 4, zero_points), ErrorKind::kUsage, "not fit");
}

TEST_CASE("one scale for each member becomes one scale for each channel") {
  Scheme scheme{.code = CodeType::kS8,
                .bits = 8,
                .granularity = Granularity::kTensor,
                .group_size = kK,
                .scale_rows = 2};
  const FixedLinear a = Random(scheme, 2, 1);
  scheme.scale_rows = 3;
  const FixedLinear b = Random(scheme, 3, 2);
  const auto whole = Value(Stack("m", {&a, &b}));
  CHECK(whole->scheme().granularity == Granularity::kChannel);
  CHECK(whole->scheme().scale_rows == 1);
  CHECK(whole->groups() == 1);
}

TEST_CASE("members in one activation order are stacked in it") {
  const std::vector<uint32_t> order = {3, 1, 2, 0, 4, 5, 6, 7, 8, 9, 11, 10};
  const FixedLinear a = Random(Grouped(CodeType::kU4), 2, 1, order);
  const FixedLinear b = Random(Grouped(CodeType::kU4), 2, 2, order);
  const auto whole = Value(Stack("m", {&a, &b}));
  CHECK(whole->reordered());
  CHECK(*Value(whole->KOrder()) == order);
}

TEST_CASE("the largest of the members decides how many rows are read together") {
  FixedLinear a = Random(Grouped(CodeType::kU4), 2, 1);
  FixedLinear b = Random(Grouped(CodeType::kU4), 2, 2);
  b.SetWideRows(64);
  CHECK(Value(Stack("m", {&a, &b}))->wide_rows() == 64);
}

// What is said of two modules that do not go together.
std::string WhyNot(FixedLinear& a, FixedLinear& b) {
  a.SetModule("layer.q_proj");
  b.SetModule("layer.k_proj");
  const Status status = Stack("m", {&a, &b}).status();
  REQUIRE_FALSE(status.ok());
  CHECK(static_cast<int>(status.kind()) == static_cast<int>(ErrorKind::kUnsupported));
  return status.what();
}

TEST_CASE("members that do not go together are not stacked, and the reason says how") {
  const Scheme scheme = Grouped(CodeType::kU4);
  FixedLinear a = Random(scheme, 4, 1);

  FixedLinear eight_bits = Random(Grouped(CodeType::kU8), 4, 2);
  CHECK(WhyNot(a, eight_bits) ==
        "q_proj has w4a16 group 4 asymmetric, k_proj w8a16 group 4 asymmetric");

  FixedLinear shorter(scheme, 4, 8, std::vector<std::byte>(16), std::vector<float>(8),
                      std::vector<uint8_t>(8), {});
  CHECK(WhyNot(a, shorter) == "q_proj has 12 input channels, k_proj 8");

  std::vector<uint32_t> order(kK);
  std::iota(order.rbegin(), order.rend(), 0U);
  FixedLinear reordered = Random(scheme, 4, 3, order);
  CHECK(WhyNot(a, reordered) == "q_proj has no activation order, k_proj has one");
  CHECK(WhyNot(reordered, a) == "q_proj has an activation order, k_proj has none");
  std::swap(order[0], order[5]);
  FixedLinear otherwise = Random(scheme, 4, 3, order);
  CHECK(WhyNot(reordered, otherwise) == "q_proj has one activation order, k_proj another");

  FixedLinear half = Random(scheme, 4, 4);
  half.SetInput({.scale = 0.5F, .zero_point = 3});
  CHECK(WhyNot(a, half) ==
        "q_proj has no static activations, k_proj activations of scale 0.5 and zero point 3");

  const Scheme blocks{.code = CodeType::kF8E4M3,
                      .bits = 8,
                      .granularity = Granularity::kBlock,
                      .group_size = 4,
                      .scale_rows = 3};
  FixedLinear cut = Random(blocks, 4, 5);
  FixedLinear next = Random(blocks, 3, 6);
  CHECK(WhyNot(cut, next) == "blocks of 3 output channels would begin in q_proj and end in k_proj");
  CHECK(Stack("m", {&next, &cut}).ok());
}

TEST_CASE("a stack knows how many experts it holds, and names each tensor of the source once") {
  const FixedLinear a = Random(Grouped(CodeType::kU4), 2, 1);
  const FixedLinear b = Random(Grouped(CodeType::kU4), 2, 2);
  CHECK(Value(Stack("m.experts.down_proj", {&a, &b}, 2))->stacked_experts() == 2);
  CHECK(Value(Stack("m.ab", {&a, &b}))->stacked_experts() == 0);
}

TEST_CASE("rows of many members are found wherever they begin and end") {
  StackedEnds ends;
  std::vector<size_t> owner;  // of each channel
  std::vector<uint64_t> first;
  for (size_t member = 0; member < 40; ++member) {
    const uint64_t n = member % 7;  // none, too
    first.push_back(ends.total());
    ends.Add(n);
    owner.insert(owner.end(), n, member);
  }
  REQUIRE(ends.total() == owner.size());
  for (uint64_t n0 = 0; n0 <= owner.size(); ++n0) {
    for (uint64_t rows = 0; rows <= owner.size() - n0; rows += 3) {
      uint64_t next = n0;
      RequireOk(ends.ForRows(n0, rows, [&](const StackedRows& piece) -> Status {
        CHECK(piece.before == next - n0);
        CHECK(piece.rows > 0);
        for (uint64_t row = 0; row < piece.rows; ++row, ++next) {
          CHECK(owner[next] == piece.member);
          CHECK(first[piece.member] + piece.n0 + row == next);
        }
        return {};
      }));
      CHECK(next == n0 + rows);
    }
  }
  CHECK(ends.ForRows(0, 5, [](const StackedRows&) { return Usage("a", "b"); }).kind() ==
        ErrorKind::kUsage);
}

}  // namespace
}  // namespace prepack::testing
