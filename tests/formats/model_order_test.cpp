// Modules with activation order, read in the order of the model's input channels.

#include <string>
#include <vector>

#include "catch.h"
#include "formats/read_helpers.h"
#include "formats/truth.h"

namespace prepack::testing {
namespace {

// Every code of the ordered module at its input channel.
void checkInModelOrder(const QuantizedLinear& ordered, const QuantizedLinear& in_model_order) {
  CHECK_FALSE(in_model_order.reordered());
  CHECK(in_model_order.scheme() == ordered.scheme());
  const Result<SharedOrder> order = ordered.KOrder();
  REQUIRE(order.ok());
  const CodeType code = ordered.scheme().code;
  const std::vector<std::byte> before = Codes(ordered);
  const std::vector<std::byte> after = Codes(in_model_order);
  size_t different = 0;
  for (uint64_t n = 0; n < ordered.n(); ++n) {
    for (uint64_t j = 0; j < ordered.k(); ++j) {
      different += PanelCode(code, before, ordered.k(), n, j) !=
                           PanelCode(code, after, ordered.k(), n, (**order)[j])
                       ? 1
                       : 0;
    }
  }
  CHECK(different == 0);
  // A panel in the middle is cut from the whole.
  const PanelRange panel{.n0 = 8, .rows = 8, .k0 = 128, .cols = 64};
  const std::vector<std::byte> piece = Codes(in_model_order, panel);
  for (uint64_t n = 0; n < panel.rows; ++n) {
    for (uint64_t k = 0; k < panel.cols; ++k) {
      different += PanelCode(code, piece, panel.cols, n, k) !=
                           PanelCode(code, after, ordered.k(), panel.n0 + n, panel.k0 + k)
                       ? 1
                       : 0;
    }
  }
  CHECK(different == 0);
}

TEST_CASE("modules with activation order are read in the model's order, too") {
  for (const std::string name : {"ct-old-actorder-group-g128", "gptqmodel-w4-actorder-g128"}) {
    INFO(name);
    const OpenedModel opened = MustOpen(std::string(PREPACK_FIXTURES) + "/checkpoints/" + name);
    size_t ordered = 0;
    for (const auto& linear : opened.model.modules) {
      if (!linear->reordered()) continue;
      ++ordered;
      checkInModelOrder(*linear, *linear->InModelOrder());
      // The way of modules that can be read in their order only.
      checkInModelOrder(*linear, *linear->QuantizedLinear::InModelOrder());
    }
    CHECK(ordered > 0);
  }
}

}  // namespace
}  // namespace prepack::testing
