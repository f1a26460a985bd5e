#include "prepack/layouts/table.h"

#include <algorithm>
#include <set>

#include "catch.h"
#include "prepack/layouts/drawing.h"

namespace prepack::testing {
namespace {

TEST_CASE("every row of the table is complete, and ids are unique") {
  std::set<std::string_view> ids;
  for (const Layout& layout : AllLayouts()) {
    INFO(layout.id);
    CHECK(ids.insert(layout.id).second);
    CHECK(FindLayout(layout.id) == &layout);
    const bool of_all = layout.target == kAnyTarget;
    if (!of_all) REQUIRE(FindTarget(layout.target) != nullptr);
    CHECK(layout.id.starts_with(of_all ? "plain/" : std::string(layout.target) + "/"));
    CHECK(layout.version >= 1);
    CHECK(layout.fingerprint.size() == 32);
    for (const std::string_view text : {layout.consumer, layout.mirrors, layout.schemes,
                                        layout.constraints, layout.isa, layout.address}) {
      CHECK_FALSE(text.empty());
    }
  }
  CHECK(ids.size() >= 25);
}

TEST_CASE("every row of a checkpoint format is complete, and belongs to a target of its name") {
  for (const Layout& layout : CheckpointLayouts()) {
    INFO(layout.id);
    CHECK(layout.checkpoint);
    CHECK(FindLayout(layout.id) == &layout);
    REQUIRE(FindTarget(layout.target) != nullptr);
    CHECK(FindTarget(layout.target)->checkpoint);
    CHECK(layout.id.starts_with(std::string(layout.target) + "/"));
    CHECK(layout.version >= 1);
    CHECK(layout.fingerprint.size() == 32);
    for (const std::string_view text : {layout.consumer, layout.mirrors, layout.schemes,
                                        layout.constraints, layout.isa, layout.address}) {
      CHECK_FALSE(text.empty());
    }
  }
}

TEST_CASE("every layout can be drawn, and its rows list every part of a module") {
  for (const Layout& layout : AllLayouts()) {
    INFO(layout.id);
    const PackRequest request = DrawnExample(layout);
    CHECK(layout.eligible(request).ok);
    const std::vector<PartSpec> parts = layout.Parts(request);
    CHECK(parts[0].role == PartRole::kWeight);
    const std::vector<PartRow> rows = layout.PartRows();
    for (const PartSpec& part : parts) {
      CHECK(std::ranges::count(rows, part.name, &PartRow::name) >= 1);
    }
  }
}

TEST_CASE("a symbol is a value, or a text with a function of the module") {
  PackRequest module;
  module.n = 7;
  module.activation_dtype = DType::kF16;
  const Extent fixed = 32;
  CHECK(fixed.Of(module) == 32);
  CHECK(fixed.text().empty());
  CHECK(symbol::kN.Of(module) == 7);
  CHECK(symbol::kN.text() == "N");
  CHECK(kVllmWna16.input.Of(module) == DType::kF16);
  CHECK(kOneDnnW4A16.input.Of(module) == DType::kBF16);
}

TEST_CASE("what one layout does otherwise is in its row") {
  using Ids = std::set<std::string_view>;
  Ids asked;
  Ids primitives;
  Ids statics;
  Ids scaled_by_consumer;
  PackRequest per_channel;
  per_channel.scheme.granularity = Granularity::kChannel;
  for (const Layout& layout : AllLayouts()) {
    if (layout.FormIsAsked()) asked.insert(layout.id);
    if (layout.by_primitive) primitives.insert(layout.id);
    if (layout.static_activations) statics.insert(layout.id);
    if (layout.consumer_scales.Of(per_channel)) scaled_by_consumer.insert(layout.id);
    CHECK_FALSE(layout.consumer_scales.Of({}));
  }
  CHECK(asked == Ids{"onednn/w8a8"});
  CHECK(primitives == Ids{"onednn/w4a16", "onednn/w4a8", "onednn/w8a8"});
  CHECK(statics == Ids{"onednn/w8a8", "vllm-arm/int8-plain", "vllm-cpu/int8-plain"});
  CHECK(scaled_by_consumer == Ids{"vllm-cpu/fp8-vnni"});
}

TEST_CASE("targets offer their layouts") {
  for (const Target& target : AllTargets()) {
    CHECK_FALSE(LayoutsOfTarget(target.id).empty());
    for (const Layout* layout : LayoutsOfTarget(target.id)) {
      const bool older = target.id == "compressed-tensors-0.17" && layout->id != kCtPacked.id &&
                         layout->target == kCtPacked.target;
      CHECK((layout->target == target.id || layout->target == kAnyTarget || older));
    }
  }
  CHECK(FindTarget("gpu") == nullptr);
  CHECK(FindLayout("vllm-cpu/none") == nullptr);
  CHECK(LayoutsOfTarget("gpu").size() == 2);  // what every target takes
}

std::string Rounding(std::string_view id, DType stored, bool exact) {
  PackRequest request;
  request.stored_scale_dtype = stored;
  request.exact_scales = exact;
  return ScaleRounding(*FindLayout(id), request);
}

TEST_CASE("the rounding of scales is named") {
  CHECK(Rounding("vllm-cpu/wna16", DType::kBF16, false) == "none");
  CHECK(Rounding("vllm-cpu/wna16", DType::kF16, true) == "F16 to BF16, nearest even");
  CHECK(Rounding("vllm-cpu/int4-w4a8", DType::kF32, false) == "F32 to BF16, nearest even");
  CHECK(Rounding("vllm-cpu/int4-w4a8", DType::kF32, true) == "none");
  CHECK(Rounding("vllm-cpu/int8-vnni", DType::kBF16, false) == "none");
  CHECK(Rounding("plain/bf16", DType::kBF16, false) == "none");
}

}  // namespace
}  // namespace prepack::testing
