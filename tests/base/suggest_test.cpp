#include "base/suggest.h"

#include <vector>

#include "catch.h"

namespace prepack {
namespace {

TEST_CASE("the nearest name is suggested, if one is near") {
  const std::vector<std::string> known = {"vllm-cpu", "zentorch", "onednn"};
  CHECK(DidYouMean("vllm_cpu", known) == "Did you mean vllm-cpu?");
  CHECK(DidYouMean("zen", known) == "");
  CHECK(DidYouMean("zentorc", known) == "Did you mean zentorch?");
  CHECK(DidYouMean("onednnn", known) == "Did you mean onednn?");
  CHECK(DidYouMean("tensorrt", known) == "");
  CHECK(DidYouMean("", known) == "");
  CHECK(DidYouMean(std::string(10'000, 'a'), known) == "");
}

}  // namespace
}  // namespace prepack
