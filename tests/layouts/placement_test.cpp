#include "catch.h"
#include "layouts/requests.h"

namespace prepack {
namespace {

using testing::RequestsFor;

// Counts how often each byte of a part is placed by strips of `step` rows.
std::vector<unsigned> Cover(const Layout& layout, const PackRequest& request, const PartSpec& part,
                            uint64_t step) {
  std::vector<unsigned> count(TensorBytes(part.dtype, part.shape).value());
  for (uint64_t n0 = 0; n0 < request.n; n0 += step) {
    const Placement place = layout.place(request, part.role, n0, std::min(step, request.n - n0));
    for (uint64_t run = 0; run < place.runs; ++run) {
      const uint64_t begin = place.offset + run * place.stride;
      REQUIRE(begin + place.run_bytes <= count.size());
      for (uint64_t i = 0; i < place.run_bytes; ++i) ++count[begin + i];
    }
  }
  return count;
}

TEST_CASE("the strips of a module cover every byte of every part exactly once") {
  for (const Layout& layout : AllLayouts()) {
    for (const PackRequest& request : RequestsFor(layout)) {
      INFO(layout.id << " N " << request.n << " K " << request.k << " group "
                     << request.scheme.group_size);
      for (const PartSpec& part : layout.parts(request)) {
        for (const uint64_t strips : {uint64_t{1}, uint64_t{3}}) {
          const std::vector<unsigned> count =
              Cover(layout, request, part, strips * layout.rows_multiple);
          CHECK(std::all_of(count.begin(), count.end(), [](unsigned c) { return c == 1; }));
        }
      }
    }
  }
}

}  // namespace
}  // namespace prepack
