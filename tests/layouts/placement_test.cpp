#include "catch.h"
#include "layouts/requests.h"
#include "prepack/layouts/parameters.h"

namespace prepack::testing {
namespace {

void Count(const Placement& placement, std::vector<unsigned>& count) {
  for (const Runs& runs : placement) {
    for (uint64_t run = 0; run < runs.count; ++run) {
      const uint64_t begin = runs.offset + run * runs.stride;
      REQUIRE(begin + runs.bytes <= count.size());
      for (uint64_t i = 0; i < runs.bytes; ++i) ++count[begin + i];
    }
  }
}

// Counts how often each byte of a part is placed.
std::vector<unsigned> Cover(const Layout& layout, const PackRequest& request, const PartSpec& part,
                            bool strips) {
  std::vector<unsigned> count(TensorBytes(part.dtype, part.shape).value());
  if (part.role == PartRole::kWeight) {
    const TileGrid grid(request.n, request.k, SmallTiles(layout, request, strips));
    for (size_t i = 0; i < grid.size(); ++i) {
      Count(layout.place_weight(request, grid.At(i)), count);
    }
    return count;
  }
  const uint64_t step = 3 * layout.cut(request).strip_rows;
  for (uint64_t n0 = 0; n0 < request.n; n0 += step) {
    Count(PlaceParameters(layout, request, part.role, n0, std::min(step, request.n - n0)), count);
  }
  return count;
}

TEST_CASE("the tiles and strips of a module cover every byte of every part exactly once") {
  for (const Layout& layout : AllLayouts()) {
    for (const PackRequest& request : RequestsFor(layout)) {
      INFO(Name(layout, request));
      for (const PartSpec& part : layout.Parts(request)) {
        if (part.role > PartRole::kZeroPoint) continue;  // written whole
        INFO(part.name);
        for (const bool strips : {false, true}) {
          const std::vector<unsigned> count = Cover(layout, request, part, strips);
          CHECK(std::all_of(count.begin(), count.end(), [](unsigned c) { return c == 1; }));
        }
      }
    }
  }
}

}  // namespace
}  // namespace prepack::testing
