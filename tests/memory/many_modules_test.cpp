// A model of very many modules, as mixtures of experts have them: what is written of each, and what
// each takes in memory and in work, stays what it is. Counted, not timed.

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "catch.h"
#include "memory/counting_allocator.h"
#include "prepack/check/judgement.h"
#include "prepack/packed/manifest.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

constexpr uint64_t kModules = 20'000;

std::string NameOf(uint64_t i) {
  return fmt::format("model.layers.{}.mlp.experts.{}.down_proj", i / 384, i % 384);
}

TensorRecord PartOf(const std::string& module, std::string_view part, uint64_t offset) {
  return {.tensor = fmt::format("{}.{}", module, part),
          .file = "model-00001-of-00001.safetensors",
          .offset = offset,
          .dtype = DType::kU8,
          .shape = {4, 1, 2176},
          .xxh3_128 = "31fb0bdbf1005556201b456f4a0a75bb"};
}

// Three parts each, as of vllm-cpu/int4-w4a8.
Manifest ManifestOf(uint64_t modules) {
  Manifest manifest;
  manifest.target = "vllm-cpu";
  manifest.source_quantization_config = Json::object();
  manifest.layouts["vllm-cpu/int4-w4a8"] = {1, "x"};
  manifest.files["model-00001-of-00001.safetensors"] = {1ULL << 40, "x"};
  for (uint64_t i = 0; i < modules; ++i) {
    const std::string name = NameOf(i);
    ModuleRecord& record = manifest.modules[name];
    record.layout = "vllm-cpu/int4-w4a8";
    record.scheme = {.code = CodeType::kU4,
                     .bits = 4,
                     .granularity = Granularity::kGroup,
                     .group_size = 128,
                     .symmetric = true};
    record.n = 128;
    record.k = 128;
    record.scale_rounding = "none";
    record.source_xxh3_128 = "ed85d6030a5d0a5cfdc3a66612a6b514";
    for (const std::string_view part : {"weight", "weight_scale", "weight_zero_point"}) {
      record.parts.emplace(part, PartOf(name, part, 8704 * i));
    }
  }
  return manifest;
}

TEST_CASE("a manifest of very many modules is small, and read in little more than it holds") {
  const TempFolder folder;
  const std::filesystem::path path = folder / "prepack.json";
  {
    const Manifest manifest = ManifestOf(kModules);
    RequireOk(WriteManifest(path, manifest, OwnRecords(manifest)));
  }
  const uint64_t bytes = std::filesystem::file_size(path);
  CHECK(bytes / kModules <= 1200);  // 1,900 when the entries were indented

  const uint64_t before = AllocatedSoFar().now;
  StartCounting();
  const Result<Manifest> manifest = ReadManifestFile(path);
  const Allocated allocated = AllocatedSoFar();
  RequireOk(manifest.status());
  REQUIRE(manifest->modules.size() == kModules);
  const uint64_t kept = allocated.now - before;
  // The text, what is kept, and no document of all modules between them, which would take four
  // times what is kept.
  INFO(kept / kModules << " bytes a module, " << (allocated.peak - before) / kModules
                       << " at the peak");
  CHECK(allocated.peak - before <= 2 * bytes + kept + kept / 4);
}

TEST_CASE("a check keeps little of each module") {
  constexpr uint64_t kChecks = 1000;
  std::vector<ModuleCheck> checks;
  checks.reserve(kChecks);
  std::map<std::string, SchemeHistograms> histograms;
  const uint64_t before = AllocatedSoFar().now;
  StartCounting();
  for (uint64_t i = 0; i < kChecks; ++i) {
    ModuleStatistics statistics;
    for (size_t code = 0; code < 16; ++code) statistics.histogram.Add(code);
    for (size_t exponent = 120; exponent > 100; --exponent)
      statistics.scale_exponents.Add(exponent);
    statistics.windows.empty_scale_exponents.Add(110);
    KeepStatistics(statistics, checks.emplace_back(), histograms);
  }
  const uint64_t kept = (AllocatedSoFar().now - before) / kChecks + sizeof(ModuleCheck);
  CHECK(kept <= 360);  // 1,200 when each had histograms of its own
}

TEST_CASE("modules are compared with their peers in work that grows as their number") {
  const auto judged = [](uint64_t modules) {
    std::vector<ModuleCheck> checks(modules);
    std::vector<std::string> names(modules);
    for (uint64_t i = 0; i < modules; ++i) {
      names[i] = NameOf(i);
      checks[i].module = names[i];
      checks[i].n = 128;
      checks[i].k = 128;
      checks[i].scheme = Scheme{.code = CodeType::kU4, .bits = 4};
      CheckFigures& figures = checks[i].figures.emplace();
      figures.commonest_fraction = 1;
      figures.root_mean_square = 0.09 + static_cast<double>(i % 7) / 1000;
    }
    std::vector<Finding> findings;
    StartCounting();
    JudgeModel(checks, findings);
    for (const ModuleCheck& check : checks) REQUIRE(check.findings.empty());
    return AllocatedSoFar().total;
  };
  const uint64_t few = judged(500);
  CHECK(judged(4000) <= 12 * few);  // eight times as many modules
}

}  // namespace
}  // namespace prepack::testing
