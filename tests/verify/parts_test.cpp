// Verifications that are cut into parts. That damaged folders are judged alike is tested wherever
// in_parts.h is used.

#include "prepack/verify/parts.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "part_reports.h"
#include "verify/in_parts.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;

MergeStatus MergeOf(const VerifyOptions& options) {
  return [=](const ReportPaths& reports) {
    Progress progress;
    return MergeVerification(options, reports, progress).status();
  };
}

// A checkpoint and what was packed of it.
struct VerifiedExample {
  explicit VerifiedExample(const std::string& checkpoint = "ct-w4a16-g32-asym",
                           const std::string& target = "vllm-cpu") {
    options.folder = temp / "out";
    options.source = Fixture("checkpoints/" + checkpoint);
    options.engine = EngineChoice::kReference;
    options.jobs = 2;
    Pack(*options.source, {.target = target.c_str()}, options.folder);
  }

  VerifyReport Run(std::initializer_list<uint32_t> counts) const {
    Progress progress;
    return Value(VerifyAlsoInParts(options, progress, counts));
  }
  ReportPaths Parts(uint32_t count) const {
    fs::remove_all(temp / "reports");
    fs::create_directory(temp / "reports");
    return Value(VerifyParts(options, count, temp / "reports"));
  }

  TempFolder temp;
  VerifyOptions options;
};

TEST_CASE("sound folders pass in any number of parts") {
  const VerifiedExample example;
  CHECK(example.Run({1, 2, 3, 7, 60}).Verdict() == LevelState::kPassed);
}

TEST_CASE("checkpoints, act-order and experts are verified in parts") {
  CHECK(VerifiedExample("ct-w4a16-g32-asym", "compressed-tensors").Run({1, 3}).Verdict() ==
        LevelState::kPassed);
  CHECK(VerifiedExample("gptqmodel-w4-actorder-g128", "zentorch").Run({1, 3}).Verdict() ==
        LevelState::kPassed);
  CHECK(VerifiedExample("gpt-oss-mxfp4").Run({1, 3}).Verdict() == LevelState::kPassed);
  VerifiedExample chained;
  chained.options.source = chained.options.folder;
  chained.options.folder = chained.temp / "again";
  Pack(*chained.options.source, {.target = "compressed-tensors"}, chained.options.folder);
  CHECK(chained.Run({1, 3}).Verdict() == LevelState::kPassed);
}

TEST_CASE("with every choice of levels, samples, bars and products, parts say the same") {
  VerifiedExample example;
  for (const Level level : kLevels) {
    example.options.skip = {level};
    example.Run({2});
  }
  example.options.skip = {};
  example.options.sample = SampleChoice{.fraction = 0.5, .seed = 7};
  example.Run({2});
  example.options.sample = {};
  example.options.baseline = example.options.source;  // no unquantized weights: figures are missing
  example.Run({2});
  example.options.baseline = {};
  example.options.source = {};
  CHECK(example.Run({2}).source_found);
}

TEST_CASE("bars are those of the merge") {
  VerifiedExample example;
  const ReportPaths reports = example.Parts(3);
  Progress progress;
  VerifyOptions high = example.options;
  high.min_sqnr = {{.pattern = "", .decibel = 150}};
  CHECK(Value(MergeVerification(high, reports, progress)).Verdict() == LevelState::kFailed);
  CHECK(TextOf(MergeVerification(high, reports, progress)) == TextOf(Verify(high, progress)));
}

TEST_CASE("every tensor is hashed by one part") {
  const VerifiedExample example;
  std::set<std::string> keys;
  size_t all = 0;
  for (const fs::path& path : example.Parts(4)) {
    const Json report = ReadJson(path);
    size_t modules = 0;
    for (const auto& [key, value] : report["measured"].items()) {
      keys.insert(key);
      ++all;
      modules += key.starts_with("exact ") ? 1U : 0U;
    }
    CHECK(modules < 7);
  }
  CHECK(keys.size() == all);
  const Manifest manifest = Value(PackedFolder::Open(example.options.folder)).manifest();
  const auto tensors =
      std::ranges::count_if(keys, [](const std::string& key) { return key.starts_with("bytes "); });
  size_t parts = manifest.tensors.size();
  for (const auto& [name, module] : manifest.modules) parts += module.parts.size();
  CHECK(static_cast<size_t>(tensors) == parts);
}

TEST_CASE("reports of other verifications are not merged") {
  const VerifiedExample example;
  const ReportPaths reports = example.Parts(3);
  CheckWrongReports(reports, MergeOf(example.options));
  VerifyOptions other = example.options;
  other.source = Fixture("checkpoints/ct-w8a8-static");
  CheckError(MergeOf(other)(reports), ErrorKind::kUsage, "another source, or one that has changed");
  other = example.options;
  other.skip = {Level::kGemm};
  CheckError(MergeOf(other)(reports), ErrorKind::kUsage,
             "other options (found --engine reference, expected --engine reference --skip gemm)");
  other = example.options;
  other.sample = SampleChoice{.fraction = 0.5, .seed = 0};
  CheckError(MergeOf(other)(reports), ErrorKind::kUsage, "--sample 0.5 --seed 0");
  other = example.options;
  other.repack = true;
  CheckError(MergeOf(other)(reports), ErrorKind::kUsage, "--repack");
  other = example.options;
  other.sampled_weights = UINT64_MAX;
  CheckError(MergeOf(other)(reports), ErrorKind::kUsage, "--all-channels");
  other = example.options;
  other.engine = EngineChoice::kOneDnn;
  CheckError(MergeOf(other)(reports), ErrorKind::kUsage, "--engine onednn");
  other = example.options;
  other.baseline = other.source;
  CheckError(MergeOf(other)(reports), ErrorKind::kUsage, "another baseline");
  other = example.options;
  other.folder = example.temp / "other";
  Pack(*other.source, {.target = "zentorch"}, other.folder);
  CheckError(MergeOf(other)(reports), ErrorKind::kUsage,
             "another packed folder, or one that has changed");
}

TEST_CASE("a folder that lost a file since the parts were made is not merged") {
  const VerifiedExample example;
  const ReportPaths reports = example.Parts(2);
  fs::remove(example.options.folder / "config.json");
  CheckError(MergeOf(example.options)(reports), ErrorKind::kUsage, "one that has changed");
}

TEST_CASE("parts that multiplied by another engine are not merged") {
  VerifiedExample example;
  example.options.engine = EngineChoice::kOneDnn;
  const ReportPaths reports = example.Parts(2);
  Json report = ReadJson(reports[1]);
  REQUIRE(report["measured"].contains("engine 2/2"));
  report["measured"]["engine 2/2"]["name"] = "onednn 1.0";
  CheckError(MergeWith(MergeOf(example.options), reports[1], reports, report.dump()),
             ErrorKind::kUsage, "part 2/2: it was multiplied by another engine than part 1");
  CheckHostileReports({reports[1]},
                      [&](const ReportPaths&) { return MergeOf(example.options)(reports); });
}

TEST_CASE("reports of verifications that no part wrote are refused") {
  const VerifiedExample example;
  CheckHostileReports(example.Parts(2), MergeOf(example.options));
  const VerifiedExample checkpoint("ct-w4a16-g32-asym", "compressed-tensors");
  CheckHostileReports(checkpoint.Parts(2), MergeOf(checkpoint.options));
}

TEST_CASE("a folder that cannot be opened has no parts") {
  VerifyOptions options;
  options.folder = "nowhere";
  Progress progress;
  const Status whole = Verify(options, progress).status();
  REQUIRE_FALSE(whole.ok());
  CHECK(VerifyPart(options, {.index = 1, .count = 2}, progress).status().ToString() ==
        whole.ToString());
  CHECK(MergeVerification(options, {}, progress).status().ToString() == whole.ToString());
}

}  // namespace
}  // namespace prepack::testing
