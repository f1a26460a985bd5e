#include "prepack/tune/measure.h"

#include <functional>
#include <vector>

#include "catch.h"
#include "prepack/base/progress.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

// Says that it took so long, without taking any time.
class SaidProduct final : public TimedProduct {
 public:
  explicit SaidProduct(std::function<Result<double>(size_t run)> say) : say_(std::move(say)) {}
  Result<double> Time() override { return say_(runs++); }

  size_t runs = 0;

 private:
  std::function<Result<double>(size_t run)> say_;
};

SaidProduct Always(double seconds) {
  return SaidProduct([seconds](size_t) { return seconds; });
}

TEST_CASE("the first run does not count, and a certain ranking ends it") {
  SaidProduct fast([](size_t run) { return run == 0 ? 0.05 : 0.001; });
  SaidProduct slow = Always(0.002);
  const std::vector<TimedProduct*> products = {&fast, &slow};
  const std::vector<Result<Timing>> timings = MeasureInTurn(products, {});
  REQUIRE(timings.size() == 2);
  CHECK(Value(timings[0]) == Timing{.seconds = 0.001, .low = 0.001, .high = 0.001, .samples = 7});
  CHECK(Value(timings[1]).seconds == 0.002);
  CHECK(fast.runs == 8);
  CHECK(slow.runs == 8);
}

TEST_CASE("products that are too close to each other are measured longer") {
  const auto noisy = [](double middle) {
    return SaidProduct([middle](size_t run) { return middle * (0.5 + 0.1 * double(run % 11)); });
  };
  SaidProduct a = noisy(0.001);
  SaidProduct b = noisy(0.00105);
  const std::vector<TimedProduct*> products = {&a, &b};
  const auto timings = MeasureInTurn(products, {.most = 20, .seconds = 1});
  CHECK(Value(timings[0]).samples == 20);
  CHECK(Value(timings[1]).samples == 20);
}

TEST_CASE("who is far behind gets few samples") {
  SaidProduct fast = Always(0.001);
  SaidProduct slow = Always(0.01);
  const std::vector<TimedProduct*> products = {&slow, &fast};
  const auto timings = MeasureInTurn(products, {});
  CHECK(Value(timings[0]).samples == 3);
  CHECK(Value(timings[1]).samples == 7);
}

TEST_CASE("a long run counts at once, and the time that is given is kept") {
  SaidProduct slow = Always(3);
  SaidProduct other = Always(4);
  const std::vector<TimedProduct*> products = {&slow, &other};
  const auto timings = MeasureInTurn(products, {.seconds = 1});
  CHECK(slow.runs == 1);
  CHECK(Value(timings[0]).seconds == 3);
  CHECK(Value(timings[1]).samples == 1);
}

TEST_CASE("a product that fails does not stop the others") {
  SaidProduct broken([](size_t run) {
    return run < 2 ? Result<double>(0.001) : Result<double>(Unavailable("op", "it gave up"));
  });
  SaidProduct good = Always(0.001);
  const std::vector<TimedProduct*> products = {&broken, &good};
  const auto timings = MeasureInTurn(products, {});
  CheckError(timings[0].status(), ErrorKind::kUnavailable, "it gave up");
  CHECK(broken.runs == 3);
  CHECK(Value(timings[1]).samples == 7);
  CHECK(MeasureInTurn({}, {}).empty());
}

TEST_CASE("a request to stop ends the measurement") {
  SaidProduct endless([](size_t run) {
    if (run == 2) RequestCancellation();
    return 0.001;
  });
  const std::vector<TimedProduct*> products = {&endless};
  const auto timings = MeasureInTurn(products, {});
  ResetCancellation();
  CheckError(timings[0].status(), ErrorKind::kInterrupted, "measuring");
  CHECK(endless.runs == 3);
}

}  // namespace
}  // namespace prepack::testing
