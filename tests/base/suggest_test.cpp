#include "prepack/base/text.h"

#include <vector>

#include "catch.h"

namespace prepack::testing {
namespace {

const std::vector<std::string> kTargets = {"vllm-cpu", "zentorch", "onednn"};

TEST_CASE("a slip of the hand gets the nearest name") {
  CHECK(DidYouMean("vllm_cpu", kTargets) == "Did you mean vllm-cpu?");
  CHECK(DidYouMean("zentroch", kTargets) == "Did you mean zentorch?");
  CHECK(DidYouMean("onednn", kTargets) == "Did you mean onednn?");
  CHECK(DidYouMean("dnn", kTargets) == "");  // 3 edits, of 2
  CHECK(DidYouMean("onedn", kTargets) == "Did you mean onednn?");
}

TEST_CASE("of equally near names the first is taken") {
  const std::vector<std::string> names = {"ab", "ac"};
  CHECK(DidYouMean("ad", names) == "Did you mean ab?");
}

TEST_CASE("no suggestion is better than a wild one") {
  CHECK(DidYouMean("cuda", kTargets) == "");
  CHECK(DidYouMean("", kTargets) == "");
  CHECK(DidYouMean("onednn", {}) == "");
}

TEST_CASE("how far is near grows with the name") {
  const std::vector<std::string> names = {"model.layers.12.mlp.down_proj"};
  CHECK(DidYouMean("layers.12.mlp.down_proj", names) ==
        "Did you mean model.layers.12.mlp.down_proj?");  // 6 of 23: within a third
  CHECK(DidYouMean("12.mlp.down_proj", names) == "");    // 13 of 16
}

TEST_CASE("names of absurd length are left alone") {
  const std::vector<std::string> names = {std::string(600, 'a'), "b"};
  CHECK(DidYouMean(std::string(600, 'a'), names) == "");
  CHECK(DidYouMean("c", names) == "Did you mean b?");
}

}  // namespace
}  // namespace prepack::testing
