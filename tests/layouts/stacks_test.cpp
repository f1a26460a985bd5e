// Stacked experts: what is packed at once is what the experts are packed to one by one, one after
// another, for every layout whose op reads such stacks.

#include "catch.h"
#include "layouts/requests.h"
#include "prepack/layouts/parameters.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

constexpr uint64_t kExperts = 3;

std::vector<const Layout*> StackingLayouts() {
  std::vector<const Layout*> layouts;
  for (const Layout& layout : AllLayouts()) {
    if (layout.stacks_experts) layouts.push_back(&layout);
  }
  return layouts;
}

PackRequest StackOf(PackRequest one) {
  one.n *= kExperts;
  one.experts = kExperts;
  return one;
}

// Requests of single experts that may be stacked.
std::vector<PackRequest> ExpertRequests(const Layout& layout) {
  std::vector<PackRequest> requests;
  for (PackRequest request : RequestsFor(layout)) {
    if (request.n * request.k > 100'000) continue;
    request.experts = 1;
    if (layout.Takes(StackOf(request)).ok) requests.push_back(request);
  }
  return requests;
}

// Scales or zero points of a strip into their part.
void PackStrip(const Layout& layout, const PackRequest& request, const Probe& probe, PartRole role,
               uint64_t n0, uint64_t rows, std::vector<std::byte>& part) {
  const Placement placement = PlaceParameters(layout, request, role, n0, rows);
  std::vector<std::byte> packed(PlacedBytes(placement));
  const uint64_t first = n0 * request.groups();
  const uint64_t count = rows * request.groups();
  if (role == PartRole::kScale) {
    // Probes hold scales that some dtypes cannot: what is written is compared all the same.
    static_cast<void>(
        PackScales(layout, request, rows, std::span(probe.scales).subspan(first, count), packed));
  } else {
    PackZeroPoints(layout, request, rows, std::span(probe.zero_points).subspan(first, count),
                   packed);
  }
  Place(placement, packed, part);
}

// A part of a stack, its parameters in strips that begin and end within experts.
std::vector<std::byte> PackStack(const Layout& layout, const PackRequest& stack, const Probe& probe,
                                 const PartSpec& spec) {
  if (spec.role == PartRole::kWeight) return PackWhole(layout, stack, probe, spec.role);
  std::vector<std::byte> part(TensorBytes(spec.dtype, spec.shape).value());
  const uint64_t multiple = std::max(layout.cut(stack).strip_rows, stack.scheme.scale_rows);
  const uint64_t step = (stack.n_of_expert() / 2 / multiple + 1) * multiple;
  for (uint64_t n0 = 0; n0 < stack.n; n0 += step) {
    RequireOk(ForExpertRows(stack, n0, std::min(step, stack.n - n0),
                            [&](uint64_t first, uint64_t rows) -> Status {
                              PackStrip(layout, stack, probe, spec.role, first, rows, part);
                              return {};
                            }));
  }
  return part;
}

// The numbers of one expert of the stack.
Probe Slice(const PackRequest& one, const Probe& probe, uint64_t expert) {
  const PanelRange range{.n0 = expert * one.n, .rows = one.n, .k0 = 0, .cols = one.k};
  const auto first = static_cast<std::ptrdiff_t>(expert * one.n * one.groups());
  const auto last = first + static_cast<std::ptrdiff_t>(one.n * one.groups());
  return {.codes = PanelOf(one, probe.codes, range),
          .scales = {probe.scales.begin() + first, probe.scales.begin() + last},
          .zero_points = {probe.zero_points.begin() + first, probe.zero_points.begin() + last}};
}

TEST_CASE("a stack of experts is what each of them is packed to, one after another") {
  for (const Layout* layout : StackingLayouts()) {
    const std::vector<PackRequest> requests = ExpertRequests(*layout);
    CHECK_FALSE(requests.empty());
    for (const PackRequest& one : requests) {
      INFO(Name(*layout, one));
      const PackRequest stack = StackOf(one);
      SplitMix64 random(one.n * 1000 + one.k);
      const Probe probe = MakeProbe(stack, random);
      const std::vector<PartSpec> parts = layout->Parts(stack);
      const std::vector<PartSpec> of_one = layout->Parts(one);
      REQUIRE(parts.size() == of_one.size());
      for (size_t i = 0; i < parts.size(); ++i) {
        std::vector<uint64_t> shape = of_one[i].shape;
        shape.insert(shape.begin(), kExperts);
        CHECK(parts[i].shape == shape);
        const PartRole role = parts[i].role;
        if (role != PartRole::kWeight && role != PartRole::kScale && role != PartRole::kZeroPoint) {
          continue;
        }
        std::vector<std::byte> expected;
        for (uint64_t expert = 0; expert < kExperts; ++expert) {
          const std::vector<std::byte> piece =
              PackWhole(*layout, one, Slice(one, probe, expert), role);
          expected.insert(expected.end(), piece.begin(), piece.end());
        }
        INFO(parts[i].name);
        CHECK(PackStack(*layout, stack, probe, parts[i]) == expected);
      }
    }
  }
}

TEST_CASE("what cannot be stacked is refused with a reason") {
  const auto why = [](const Layout& layout, const auto& change) {
    PackRequest request = ExpertRequests(*StackingLayouts().front()).front();
    request = StackOf(request);
    change(request);
    return layout.Takes(request).reason;
  };
  const Layout& w4a8 = *FindLayout("vllm-cpu/int4-w4a8");
  REQUIRE(&w4a8 == StackingLayouts().front());
  CHECK(why(w4a8, [](PackRequest&) {}).empty());
  CHECK(why(w4a8, [](PackRequest& r) { --r.n; }) ==
        fmt::format("N = {} is not a multiple of the 3 experts",
                    ExpertRequests(w4a8).front().n * kExperts - 1));
  CHECK(why(w4a8, [](PackRequest& r) { r.reordered = true; }) ==
        "each expert has an activation order of its own");
  // 32 experts of one output channel each: none of them fills a block.
  CHECK(why(w4a8, [](PackRequest& r) { r.experts = r.n; }).starts_with("N = 1 is not"));
  const Layout& wna16 = *FindLayout("vllm-cpu/wna16");
  CHECK(why(wna16, [](PackRequest& r) { r.scheme.activations = {}; }) ==
        "the runtime has no op that reads all experts of a layer as one tensor");

  PackRequest blocks;
  blocks.n = 512;
  blocks.k = 256;
  blocks.scheme = {.code = CodeType::kF8E4M3,
                   .bits = 8,
                   .granularity = Granularity::kBlock,
                   .group_size = 128,
                   .scale_rows = 128};
  blocks.experts = 2;
  const Layout& fp8 = *FindLayout("vllm-cpu/fp8-vnni");
  CHECK(fp8.Takes(blocks).reason.empty());
  blocks.n = 384;
  CHECK(
      fp8.Takes(blocks).reason ==
      "blocks of 128 output channels would begin in one expert and end in the next: each has 192");
  // The op reads blocks only.
  blocks.scheme.granularity = Granularity::kChannel;
  blocks.scheme.scale_rows = 1;
  blocks.scheme.group_size = blocks.k;
  CHECK(fp8.Takes(blocks).reason ==
        "the runtime has no op that reads all experts of a layer as one tensor");
}

}  // namespace
}  // namespace prepack::testing
