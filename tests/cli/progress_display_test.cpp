#include "terminal.h"

#include "catch.h"
#include "terminal.h"

namespace prepack::cli {
namespace {

std::string ProgressOf(std::string_view stage, uint64_t done, uint64_t total, double seconds) {
  return ProgressText({.stage = stage, .done = done, .total = total, .seconds = seconds}, 0);
}

TEST_CASE("a progress line has share, amount, rate and time left") {
  CHECK(ProgressOf("packing", 250'000'000, 1'000'000'000, 0.5) ==
        "packing     25 %  250.0 MB of 1.0 GB  500.0 MB/s  2 s left");
}

TEST_CASE("a progress line claims no rate before there is one") {
  CHECK(ProgressOf("packing", 0, 10'000, 5) == "packing      0 %  0 B of 10.0 kB");
  CHECK(ProgressOf("packing", 5'000, 10'000, 0.1) == "packing     50 %  5.0 kB of 10.0 kB");
}

TEST_CASE("a progress line never passes 100 %, and claims nothing of what is not known") {
  CHECK(ProgressOf("hashing", 12'000, 10'000, 0.1) == "hashing    100 %  10.0 kB of 10.0 kB");
  CHECK(ProgressOf("flushing", 0, 0, 3) == "flushing …");
}

TEST_CASE("a progress line names the item, as far as it fits") {
  const ProgressState state{
      .stage = "packing", .done = 5'000, .total = 10'000, .item = "model.layers.0.mlp.up_proj"};
  const std::string head = "packing     50 %  5.0 kB of 10.0 kB";
  CHECK(ProgressText(state, 0) == head + "  model.layers.0.mlp.up_proj");
  CHECK(ProgressText(state, 63) == head + "  model.layers.0.mlp.up_proj");
  CHECK(ProgressText(state, 62) == head + "  model.layers….mlp.up_proj");
  CHECK(ProgressText(state, 49) == head + "  model…p_proj");
  CHECK(ProgressText(state, 48) == head);  // less would say nothing
  CHECK(ProgressText(state, 20) == "packing  …of 10.0 kB");
  for (size_t width = 20; width < 70; ++width) CHECK(Columns(ProgressText(state, width)) <= width);
}

TEST_CASE("an item cannot reach the terminal") {
  const ProgressState state{.stage = "packing", .done = 0, .total = 1, .item = "a\x1b[2Jb"};
  CHECK(ProgressText(state, 0) == "packing      0 %  0 B of 1 B  a\\x1b[2Jb");
}

TEST_CASE("a stage that ended has its time and rate") {
  CHECK(StageText({.stage = "packing", .done = 3'000'000, .total = 3'000'000, .seconds = 1.5}) ==
        "packing    1.5 s  3.0 MB  2.0 MB/s");
  CHECK(StageText({.stage = "flushing", .seconds = 0.25}) == "flushing   0.2 s");
}

TEST_CASE("progress is shown on terminals, and where it is asked for") {
  const auto style = [](const char* progress, bool quiet, bool is_terminal) {
    CommonOptions options;
    options.progress = progress;
    options.quiet = quiet;
    return ProgressStyleOf(options, is_terminal);
  };
  CHECK(style("auto", false, true) == ProgressStyle::kLine);
  CHECK(style("auto", false, false) == ProgressStyle::kNone);
  CHECK(style("plain", false, true) == ProgressStyle::kPlain);
  CHECK(style("plain", false, false) == ProgressStyle::kPlain);
  CHECK(style("none", false, true) == ProgressStyle::kNone);
  CHECK(style("plain", true, true) == ProgressStyle::kNone);
}

}  // namespace
}  // namespace prepack::cli
