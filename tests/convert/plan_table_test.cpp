// What every real checkpoint becomes for every target: one table, fixtures/plans.txt, from which
// other tests know what to expect (planned_layouts.h, tests/cli/formats_test.py). When a plan
// changes on purpose, write it anew with
//
//     PREPACK_UPDATE_PLANS=1 build/release/bin/test_convert "*plans.txt*"
//
// and look at the difference.

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "catch.h"
#include "prepack/convert/plan.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

struct Variant {
  std::string name;
  std::vector<SchemeChoice> schemes;
  Fallback fallback = Fallback::kKeep;
  std::optional<DType> activations = {};
  std::string like = {};  // the variant that it is left out for if the plans are the same
};

std::vector<Variant> Variants() {
  return {{.name = "", .schemes = {}},
          {.name = " --scheme w4a8", .schemes = {{.pattern = "", .scheme = WantedScheme::kW4A8}}},
          {.name = " --scheme w8a8", .schemes = {{.pattern = "", .scheme = WantedScheme::kW8A8}}},
          {.name = " --fallback dequantize", .schemes = {}, .fallback = Fallback::kDequantize},
          {.name = " --dtype bf16", .schemes = {}, .activations = DType::kBF16},
          {.name = " --dtype bf16 --fallback dequantize",
           .schemes = {},
           .fallback = Fallback::kDequantize,
           .activations = DType::kBF16,
           .like = " --fallback dequantize"}};
}

std::string Describe(const Plan& plan) {
  std::map<std::string, size_t> modules;  // what becomes of them → how many
  for (const ModulePlan& module : plan.modules) {
    std::string fate =
        module.chosen == nullptr ? "kept: " + module.WhyRejected() : std::string(module.chosen->id);
    if (module.chosen != nullptr && FindPart(module.parts, PartRole::kInputOrder) != nullptr) {
      fate += " with input_order";
    }
    if (!module.note.empty()) fate += "; " + module.note;
    ++modules[fate];
  }
  std::string text;
  for (const auto& [fate, count] : modules) text += fmt::format("    {} {}\n", count, fate);
  return text;
}

// Nothing where the variant is for no module of the checkpoint, or changes nothing.
std::string PlanText(const std::string& name, const Checkpoint& checkpoint,
                     const QuantizedModel& model) {
  std::string text;
  for (const Target& target : AllTargets()) {
    std::map<std::string, std::string> fates_of;  // by name of the variant
    for (const Variant& variant : Variants()) {
      const Result<Plan> plan = MakePlan(checkpoint, model,
                                         {.target = std::string(target.id),
                                          .activation_dtype = variant.activations,
                                          .schemes = variant.schemes,
                                          .fallback = variant.fallback});
      if (!plan.ok()) {
        CHECK(plan.status().kind() == ErrorKind::kUsage);
        continue;
      }
      const std::string fates = Describe(*plan);
      fates_of[variant.name] = fates;
      if (!variant.name.empty() && fates == fates_of[variant.like]) continue;
      text += fmt::format("{} --target {}{}\n{}", name, target.id, variant.name, fates);
    }
  }
  return text;
}

std::string AllPlans() {
  std::vector<std::filesystem::path> checkpoints;
  for (const auto& entry : std::filesystem::directory_iterator(Fixture("checkpoints"))) {
    checkpoints.push_back(entry.path());
  }
  std::ranges::sort(checkpoints);
  std::string text;
  for (const std::filesystem::path& path : checkpoints) {
    INFO(path);
    const Result<Checkpoint> checkpoint = Checkpoint::Open(path);
    REQUIRE(checkpoint.ok());
    const Result<QuantizedModel> model = ReadQuantizedModel(*checkpoint);
    REQUIRE(model.ok());
    text += PlanText(path.filename().string(), *checkpoint, *model);
  }
  return text;
}

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST_CASE("every real checkpoint is planned for every target as plans.txt says") {
  const std::string found = AllPlans();
  const std::filesystem::path path = Fixture("plans.txt");
  if (std::getenv("PREPACK_UPDATE_PLANS") != nullptr) std::ofstream(path) << found;
  std::ostringstream expected;
  expected << std::ifstream(path).rdbuf();
  INFO("when the plans change on purpose, write them anew as the head of this file says");
  const std::vector<std::string> found_lines = Lines(found);
  const std::vector<std::string> expected_lines = Lines(expected.str());
  for (size_t i = 0; i < std::min(found_lines.size(), expected_lines.size()); ++i) {
    INFO("line " << i + 1);
    REQUIRE(found_lines[i] == expected_lines[i]);
  }
  CHECK(found_lines.size() == expected_lines.size());
}

}  // namespace
}  // namespace prepack::testing
