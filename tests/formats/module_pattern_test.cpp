#include "prepack/formats/regex.h"

#include "catch.h"
#include "status_matchers.h"

namespace prepack {
namespace {

using testing::CheckError;
using testing::Value;

TEST_CASE("an option is for all modules, or for those of a pattern") {
  CHECK(Value(SplitPatternOption("--bar", "40")).value == "40");
  CHECK(Value(SplitPatternOption("--bar", "40")).pattern.empty());
  const PatternOption option = Value(SplitPatternOption("--bar", "a=b|c=40"));
  CHECK(option.pattern == "a=b|c");
  CHECK(option.value == "40");
  CheckError(SplitPatternOption("--bar", "=40").status(), ErrorKind::kUsage,
             "--bar: the pattern before \"=\" is missing (found =40)");
}

TEST_CASE("a pattern is for the modules that it is found in") {
  const ModulePattern all = Value(ModulePattern::Make("", "--bar 40"));
  CHECK(all.is_for_all());
  CHECK(Value(all.IsFor("model.layers.0.mlp")));
  const ModulePattern some = Value(ModulePattern::Make("layers\\.1\\.", "--bar"));
  CHECK_FALSE(some.is_for_all());
  CHECK(Value(some.IsFor("model.layers.1.mlp")));
  CHECK_FALSE(Value(some.IsFor("model.layers.11.mlp")));
  CheckError(ModulePattern::Make("(", "--bar '(=40'").status(), ErrorKind::kUsage, "--bar '(=40'");
}

}  // namespace
}  // namespace prepack
