#include "prepack/layouts/drawing.h"

#include "catch.h"
#include "prepack/layouts/fingerprint.h"
#include "prepack/layouts/table.h"

namespace prepack::testing {
namespace {

PackRequest Request(const Layout& layout, uint64_t n, uint64_t k, uint64_t group_size) {
  for (const Scheme& scheme : ProbeSchemes(n, k, group_size)) {
    PackRequest request{.scheme = scheme, .n = n, .k = k, .inputs_first = layout.inputs_first};
    if (layout.eligible(request).ok) return request;
  }
  FAIL("the layout takes no such module");
  return {};
}

std::string Draw(std::string_view id, uint64_t n, uint64_t k, uint64_t group_size) {
  const Layout& layout = *FindLayout(id);
  return DrawWeight(layout, Request(layout, n, k, group_size));
}

TEST_CASE("a drawing shows the first bytes and where the pattern changes") {
  CHECK(Draw("vllm-cpu/wna16", 32, 64, 32) ==
        R"(byte 0    n0k0  n1k0   n2k0  n3k0   n4k0  n5k0   n6k0  n7k0   …
byte 8    n0k1  n1k1   n2k1  n3k1   n4k1  n5k1   n6k1  n7k1   …
byte 512  n16k0 n17k0  n18k0 n19k0  n20k0 n21k0  n22k0 n23k0  …
)");
  CHECK(Draw("plain/bf16", 3, 10, 10) ==
        R"(byte 0   n0k0  n0k1  n0k2  n0k3  n0k4  n0k5  n0k6  n0k7  …
byte 20  n1k0  n1k1  n1k2  n1k3  n1k4  n1k5  n1k6  n1k7  …
)");
  CHECK(Draw("plain/bf16-conv1d", 10, 3, 3) ==
        R"(byte 0   n0k0  n1k0  n2k0  n3k0  n4k0  n5k0  n6k0  n7k0  …
byte 20  n0k1  n1k1  n2k1  n3k1  n4k1  n5k1  n6k1  n7k1  …
)");
}

TEST_CASE("blocks and the sums behind them show in a drawing") {
  CHECK(Draw("vllm-cpu/int4-w4a8", 64, 64, 32) ==
        R"(byte 0     n0k0  n8k0   n0k1  n8k1   n0k2  n8k2   n0k3  n8k3   …
byte 4     n1k0  n9k0   n1k1  n9k1   n1k2  n9k2   n1k3  n9k3   …
byte 32    n16k0 n24k0  n16k1 n24k1  n16k2 n24k2  n16k3 n24k3  …
byte 64    n0k4  n8k4   n0k5  n8k5   n0k6  n8k6   n0k7  n8k7   …
byte 512   ·     ·      ·     ·      ·     ·      ·     ·      …
byte 640   n0k32 n8k32  n0k33 n8k33  n0k34 n8k34  n0k35 n8k35  …
byte 1280  n32k0 n40k0  n32k1 n40k1  n32k2 n40k2  n32k3 n40k3  …
)");
}

TEST_CASE("padding shows, and a row that is all of the weight has no more to come") {
  CHECK(Draw("zentorch/int8-dlp", 2, 3, 3) ==
        R"(byte 0  n0k0  n0k1  n0k2  ·     n1k0  n1k1  n1k2  ·     …
)");
  CHECK(Draw("vllm-cpu/int8-plain", 1, 5, 5) == "byte 0  n0k0  n0k1  n0k2  n0k3  n0k4\n");
}

TEST_CASE("the cells of any bytes of the weight can be had") {
  const Layout& wna16 = *FindLayout("vllm-cpu/wna16");
  const PackRequest request = Request(wna16, 32, 64, 32);
  CHECK(WeightCellBits(request) == 4);
  CHECK(WeightCells(wna16, request, 519, 2) ==
        std::vector<WeightCell>{WeightPlace{30, 0}, WeightPlace{31, 0}, WeightPlace{16, 1},
                                WeightPlace{17, 1}});
  const Layout& vnni = *FindLayout("vllm-cpu/int8-vnni");
  CHECK(WeightCells(vnni, Request(vnni, 32, 32, 32), 1022, 4) ==
        std::vector<WeightCell>{WeightPlace{31, 30}, WeightPlace{31, 31}, std::nullopt,
                                std::nullopt});
}

}  // namespace
}  // namespace prepack::testing
