#include "prepack/verify/verify.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "catch.h"

namespace prepack::testing {
namespace {

// `count` modules of one kind, and one of another.
Manifest ManifestWith(size_t count) {
  Manifest manifest;
  for (size_t i = 0; i < count; ++i) {
    ModuleRecord& record = manifest.modules[fmt::format("model.layers.{}.up_proj", i)];
    record.layout = "vllm-cpu/wna16";
    record.n = 64;
    record.k = 128;
  }
  ModuleRecord& other = manifest.modules["lm_head"];
  other.layout = "vllm-cpu/wna16";
  other.n = 1024;
  other.k = 128;
  return manifest;
}

TEST_CASE("a sample has its share of every kind of module") {
  const std::set<std::string> sample = ChooseSample(ManifestWith(40), {.fraction = 0.1, .seed = 0});
  CHECK(sample.size() == 5);
  CHECK(sample.contains("lm_head"));
}

TEST_CASE("a sample depends on the seed and nothing else") {
  const SampleChoice first{.fraction = 0.25, .seed = 1};
  const std::set<std::string> sample = ChooseSample(ManifestWith(40), first);
  CHECK(ChooseSample(ManifestWith(40), first) == sample);
  CHECK(ChooseSample(ManifestWith(40), {.fraction = 0.25, .seed = 2}) != sample);
}

TEST_CASE("the smallest sample is one module of a kind, the largest all") {
  CHECK(ChooseSample(ManifestWith(40), {.fraction = 1e-9, .seed = 0}).size() == 2);
  CHECK(ChooseSample(ManifestWith(40), {.fraction = 1, .seed = 0}).size() == 41);
  CHECK(ChooseSample(Manifest(), {.fraction = 1, .seed = 0}).empty());
}

}  // namespace
}  // namespace prepack::testing
