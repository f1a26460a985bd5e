#include "prepack/verify/judgement.h"

#include <optional>
#include <string>
#include <vector>

#include "catch.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/layouts/table.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

TEST_CASE("a bar is a number of dB, for all modules or for those of a pattern") {
  CHECK(Value(ParseSqnrBar("40")).decibel == 40);
  CHECK(Value(ParseSqnrBar("40")).pattern.empty());
  CHECK(Value(ParseSqnrBar("0")).decibel == 0);
  const SqnrBar bar = Value(ParseSqnrBar("layers\\.0\\..*=x|down_proj=38.5"));
  CHECK(bar.decibel == 38.5);
  CHECK(bar.pattern == "layers\\.0\\..*=x|down_proj");
}

TEST_CASE("what is no bar is refused") {
  for (const char* text : {"", "high", "40dB", "nan", "inf", "-1", "201", "down_proj=", "a=nan"}) {
    CAPTURE(text);
    CheckError(ParseSqnrBar(text).status(), ErrorKind::kUsage, "--min-sqnr: not a number of dB");
  }
  CheckError(ParseSqnrBar("=40").status(), ErrorKind::kUsage, "the pattern before");
}

const std::vector<std::string> kModules = {
    "model.layers.0.mlp.up_proj", "model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj"};

TEST_CASE("the last bar that speaks of a module decides") {
  const SqnrBars bars = Value(SqnrBars::Make(
      std::vector<SqnrBar>{{"", 40}, {"down_proj", 38}, {"layers\\.1\\.", 30}}, kModules));
  CHECK(bars.Of("model.layers.0.mlp.up_proj") == 40);
  CHECK(bars.Of("model.layers.0.mlp.down_proj") == 38);
  CHECK(bars.Of("model.layers.1.mlp.down_proj") == 30);
  const SqnrBars some = Value(SqnrBars::Make(std::vector<SqnrBar>{{"down_proj", 38}}, kModules));
  CHECK(some.Of("model.layers.0.mlp.up_proj") == std::nullopt);
  CHECK(Value(SqnrBars::Make({}, kModules)).Of(kModules[0]) == std::nullopt);
}

TEST_CASE("a pattern that is for no module, or is none, is an error") {
  CheckError(SqnrBars::Make(std::vector<SqnrBar>{{"experts", 38}}, kModules).status(),
             ErrorKind::kUsage, "--min-sqnr 'experts=38': the pattern matches no packed module");
  CheckError(SqnrBars::Make(std::vector<SqnrBar>{{"(", 38}}, kModules).status(), ErrorKind::kUsage,
             "'(=38'");
}

TEST_CASE("bars follow what the kernel computes in") {
  CHECK(KernelBar(DType::kBF16) == 48);
  CHECK(KernelBar(DType::kF16) == 65);
  CHECK(KernelBar(DType::kF32) == 95);
  CHECK(DefaultEndToEndBar({}) == 40);
  CHECK(DefaultEndToEndBar({.type = ActivationType::kInt}) == 35);
  CHECK(DefaultEndToEndBar({.type = ActivationType::kInt}, true) == 29);
  CHECK(FindLayout("vllm-arm/int8-plain")->cuts_fractions);
  CHECK_FALSE(FindLayout("vllm-cpu/int8-plain")->cuts_fractions);
  CHECK(DefaultEndToEndBar({.type = ActivationType::kFloat}) == 28);
}

}  // namespace
}  // namespace prepack::testing
