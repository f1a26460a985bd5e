#include "progress_line.h"

#include "catch.h"

namespace prepack::cli {
namespace {

TEST_CASE("a progress line has share, amount, rate and time left") {
  CHECK(ProgressText("packing", 250'000'000, 1'000'000'000, 0.5) ==
        "packing     25 %  250.0 MB of 1.0 GB  500.0 MB/s  2 s left");
}

TEST_CASE("a progress line claims no rate before there is one") {
  CHECK(ProgressText("packing", 0, 10'000, 5) == "packing      0 %  0 B of 10.0 kB");
  CHECK(ProgressText("packing", 5'000, 10'000, 0.1) == "packing     50 %  5.0 kB of 10.0 kB");
}

TEST_CASE("a progress line never passes 100 %") {
  CHECK(ProgressText("hashing", 12'000, 10'000, 0.1) == "hashing    100 %  10.0 kB of 10.0 kB");
  CHECK(ProgressText("hashing", 0, 0, 0.1) == "hashing    100 %  0 B of 0 B");
}

}  // namespace
}  // namespace prepack::cli
