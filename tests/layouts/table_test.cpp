#include "layouts/table.h"

#include <set>

#include "catch.h"

namespace prepack {
namespace {

TEST_CASE("every row of the table is complete, and ids are unique") {
  std::set<std::string_view> ids;
  for (const Layout& layout : AllLayouts()) {
    INFO(layout.id);
    CHECK(ids.insert(layout.id).second);
    CHECK(FindLayout(layout.id) == &layout);
    REQUIRE(FindTarget(layout.target) != nullptr);
    CHECK(layout.id.starts_with(std::string(layout.target) + "/"));
    CHECK(layout.version >= 1);
    CHECK(layout.fingerprint.size() == 32);
    for (const std::string_view text :
         {layout.consumer, layout.mirrors, layout.schemes, layout.constraints, layout.isa}) {
      CHECK_FALSE(text.empty());
    }
  }
  CHECK(ids == std::set<std::string_view>{"vllm-cpu/wna16", "zentorch/woq"});
}

TEST_CASE("targets offer their layouts") {
  for (const Target& target : AllTargets()) {
    CHECK_FALSE(LayoutsOfTarget(target.id).empty());
    for (const Layout* layout : LayoutsOfTarget(target.id)) CHECK(layout->target == target.id);
  }
  CHECK(FindTarget("gpu") == nullptr);
  CHECK(FindLayout("vllm-cpu/none") == nullptr);
  CHECK(LayoutsOfTarget("gpu").empty());
}

TEST_CASE("the rounding of scales has a name") {
  CHECK(ScaleRounding(DType::kBF16, DType::kBF16) == "none");
  CHECK(ScaleRounding(DType::kF16, DType::kF32) == "none");
  CHECK(ScaleRounding(DType::kF32, DType::kBF16) == "F32 to BF16, nearest even");
}

}  // namespace
}  // namespace prepack
