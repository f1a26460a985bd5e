#include "prepack/base/thread_kept.h"

#include <atomic>
#include <thread>

#include "catch.h"

namespace prepack::testing {
namespace {

std::atomic<int> alive = 0;

struct Counted {
  Counted() { ++alive; }
  ~Counted() { --alive; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  int number = 0;
};

struct One;
struct Other;

TEST_CASE("every thread keeps its own value until it ends") {
  KeptByThread<Counted, One>().number = 1;
  KeptByThread<Counted, Other>().number = 2;
  const int before = alive;
  int found = -1;
  int during = 0;
  std::thread([&] {
    found = KeptByThread<Counted, One>().number;
    KeptByThread<Counted, One>().number = 3;
    during = alive;
  }).join();
  CHECK(found == 0);
  CHECK(during == before + 1);
  CHECK(alive == before);
  CHECK(KeptByThread<Counted, One>().number == 1);
  CHECK(KeptByThread<Counted, Other>().number == 2);
}

}  // namespace
}  // namespace prepack::testing
