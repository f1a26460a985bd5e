#include "prepack/layouts/table.h"

#include <set>

#include "catch.h"

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
  CHECK(ids == std::set<std::string_view>{
                   "vllm-cpu/wna16", "vllm-cpu/int4-w4a8", "vllm-cpu/int8-vnni",
                   "vllm-cpu/int8-plain", "vllm-cpu/fp8-vnni", "vllm-cpu/fp8-w8a8-vnni4",
                   "vllm-cpu/fp8-w8a8-plain", "vllm-cpu/bf16-vnni", "zentorch/woq",
                   "zentorch/da8w4", "zentorch/int8", "zentorch/int8-dlp", "onednn/w4a16",
                   "onednn/w4a8", "onednn/w8a8", "plain/bf16", "plain/bf16-conv1d"});
}

TEST_CASE("targets offer their layouts") {
  for (const Target& target : AllTargets()) {
    CHECK_FALSE(LayoutsOfTarget(target.id).empty());
    for (const Layout* layout : LayoutsOfTarget(target.id)) {
      CHECK((layout->target == target.id || layout->target == kAnyTarget));
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
