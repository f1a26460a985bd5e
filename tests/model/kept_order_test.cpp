#include "prepack/model/quantized_linear.h"

#include <thread>

#include "catch.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

TEST_CASE("an order is read when it is asked for, and kept by the thread that asked last for it") {
  int reads = 0;
  const KeptOrder order([&reads]() -> Result<InputOrder> {
    ++reads;
    return InputOrder{2, 0, 1};
  });
  CHECK(reads == 0);
  CHECK(*Value(order.Get()) == InputOrder{2, 0, 1});
  CHECK(*Value(order.Get()) == InputOrder{2, 0, 1});
  CHECK(reads == 1);

  const KeptOrder other([]() -> Result<InputOrder> { return InputOrder{1, 0}; });
  CHECK(*Value(other.Get()) == InputOrder{1, 0});
  const SharedOrder again = Value(order.Get());
  CHECK(reads == 2);

  // Whoever holds it keeps it, too.
  CHECK(Value(other.Get())->size() == 2);
  std::jthread([&] { CHECK(Value(order.Get()) == again); }).join();
  CHECK(reads == 2);
}

TEST_CASE("an order that cannot be read is an error each time") {
  bool broken = true;
  const KeptOrder order([&broken]() -> Result<InputOrder> {
    if (broken) return Malformed("a.g_idx", "gone");
    return InputOrder{0};
  });
  CheckError(order.Get().status(), ErrorKind::kMalformed, "a.g_idx: gone");
  broken = false;
  CHECK(Value(order.Get())->size() == 1);
}

}  // namespace
}  // namespace prepack::testing
