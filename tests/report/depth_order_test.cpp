#include "prepack/report/charts.h"

#include "catch.h"

namespace prepack::testing {
namespace {

TEST_CASE("modules are ordered along the depth of the model, layer 2 before layer 10") {
  const std::vector<std::string> modules = {"model.layers.10.a", "lm_head",
                                            "model.layers.2.b",  "model.layers.2.a",
                                            "model.layers.02.c", "model"};
  std::vector<std::string> ordered;
  for (const size_t i : DepthOrder(modules)) ordered.push_back(modules[i]);
  CHECK(ordered == std::vector<std::string>{"lm_head", "model", "model.layers.2.a",
                                            "model.layers.2.b", "model.layers.02.c",
                                            "model.layers.10.a"});
}

TEST_CASE("the order of modules is one that can be sorted by") {
  CHECK_FALSE(IsShallower("a.1", "a.1"));
  CHECK_FALSE(IsShallower("", ""));
  CHECK(IsShallower("", "a"));
  CHECK(IsShallower("a.0", "a.1"));
  CHECK(IsShallower("a.99999999999999999999", "a.100000000000000000000"));
  CHECK(IsShallower("a1b2", "a1b10"));
  CHECK_FALSE(IsShallower("a1b10", "a1b2"));
}

TEST_CASE("the kind of a module is the last part of its name") {
  CHECK(ModuleKind("model.layers.3.mlp.up_proj") == "up_proj");
  CHECK(ModuleKind("lm_head") == "lm_head");
  CHECK(ModuleKind("a.").empty());
}

}  // namespace
}  // namespace prepack::testing
