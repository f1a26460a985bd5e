// Checks that are cut into parts. That damaged checkpoints are judged alike is tested wherever
// check_run.h is used.

#include "prepack/check/parts.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "check/check_run.h"
#include "part_reports.h"
#include "prepack/check/measured.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/accepted.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;

MergeStatus MergeOf(const CheckOptions& options) {
  return [=](const ReportPaths& reports) {
    Progress progress;
    return MergeCheck(options, reports, progress).status();
  };
}

TEST_CASE("checks of real checkpoints say the same in parts") {
  for (const auto& entry : fs::directory_iterator(Fixture("checkpoints"))) {
    CAPTURE(entry.path().filename());
    RequireOk(CheckAlsoInParts({.source = entry.path(), .baseline = {}, .jobs = 2}).status());
  }
}

TEST_CASE("more parts than there is to read are some that read nothing") {
  const TempFolder folder;
  const CheckOptions options{
      .source = Fixture("checkpoints/ct-w4a16-g32-asym"), .baseline = {}, .jobs = 2};
  const ReportPaths reports = CheckParts(options, 60, folder.path());
  RequireOk(MergeOf(options)(reports));
  std::set<std::string> keys;
  size_t empty = 0;
  size_t all = 0;
  for (const fs::path& path : reports) {
    const Json measured = ReadJson(path)["measured"];
    empty += measured.empty() ? 1U : 0U;
    all += measured.size();
    for (const auto& [key, value] : measured.items()) keys.insert(key);
  }
  CHECK(empty > 20);
  CHECK(keys.size() == all);  // nothing is measured twice
  CHECK(keys.contains("module model.layers.0.mlp.down_proj"));
}

TEST_CASE("parts are of about the same size") {
  const TempFolder folder;
  const CheckOptions options{
      .source = Fixture("checkpoints/ct-w4a16-g32-asym"), .baseline = {}, .jobs = 2};
  for (const fs::path& path : CheckParts(options, 3, folder.path())) {
    size_t modules = 0;
    const Json report = ReadJson(path);
    for (const auto& [key, value] : report["measured"].items()) {
      modules += key.starts_with("module ") ? 1U : 0U;
    }
    CHECK(modules >= 1);
    CHECK(modules <= 4);
  }
}

TEST_CASE("accepted findings are accepted in parts") {
  const TestCheckpoint checkpoint = WideExample();
  const TempFolder folder;
  checkpoint.Write(folder / "source");
  for (const std::string& text : {std::string("norm-size"), std::string("scale-zero=layers")}) {
    CheckOptions options{.source = folder / "source", .baseline = {}, .jobs = 2};
    options.accepted = Value(AcceptedFindings::Make({&text, 1}, AcceptedBy::kCheck, "--accept"));
    const CheckReport report = Value(CheckAlsoInParts(options));
    CHECK(Lines(report).find("accept-unused") != std::string::npos);
  }
}

TEST_CASE("reports of other checks are not merged") {
  const TempFolder folder;
  const CheckOptions options{
      .source = Fixture("checkpoints/ct-w4a16-g32-asym"), .baseline = {}, .jobs = 2};
  const ReportPaths reports = CheckParts(options, 3, folder.path());
  CheckWrongReports(reports, MergeOf(options));
  CheckOptions other = options;
  other.source = Fixture("checkpoints/ct-w8a8-static");
  CheckError(MergeOf(other)(reports), ErrorKind::kUsage,
             "another checkpoint, or one that has changed");
  other = options;
  other.baseline = Fixture("checkpoints/ct-w8a8-static");
  CheckError(MergeOf(other)(reports), ErrorKind::kUsage, "another baseline");
  const std::string text = "norm-size";
  other = options;
  other.accepted = Value(AcceptedFindings::Make({&text, 1}, AcceptedBy::kCheck, "--accept"));
  CheckError(MergeOf(other)(reports), ErrorKind::kUsage, "accepted other findings");
}

TEST_CASE("reports that no part wrote are refused") {
  const TempFolder folder;
  const CheckOptions options{
      .source = Fixture("checkpoints/ct-w4a16-g32-asym"), .baseline = {}, .jobs = 2};
  const ReportPaths reports = CheckParts(options, 2, folder.path());
  CheckHostileReports(reports, MergeOf(options));
}

TEST_CASE("counts of a report stand at ascending places below 256") {
  ModuleMeasurement module;
  ModuleStatistics& statistics = module.statistics.emplace();
  for (const unsigned exponent : {120U, 3U, 255U})
    statistics.scale_exponents.Add(exponent, exponent);
  Json json = MeasuredAs<ModuleMeasurement>::Write(module);
  Json& counts = json["statistics"]["scale_exponents"];
  CHECK(counts == Json{3, 3, 120, 120, 255, 255});
  const auto read = [&] {
    Status status;
    JsonFields fields(json, "report", status);
    const ModuleMeasurement again = MeasuredAs<ModuleMeasurement>::Read(fields);
    if (status.ok()) {
      CHECK(again.statistics->scale_exponents.All() == statistics.scale_exponents.All());
    }
    return status;
  };
  RequireOk(read());
  for (const Json& wrong : {Json::array({3U, 3U, 3U, 4U}), Json::array({120U, 1U, 3U, 1U}),
                            Json::array({256U, 1U}), Json::array({3U})}) {
    counts = wrong;
    INFO(wrong);
    CheckError(read(), ErrorKind::kMalformed,
               "is no list of ascending places below 256 with their counts");
  }
}

TEST_CASE("a check of headers has no parts") {
  Progress progress;
  const CheckOptions options{
      .source = Fixture("checkpoints/ct-w4a16-g32-asym"), .baseline = {}, .headers_only = true};
  CheckError(CheckPart(options, {.index = 1, .count = 2}, progress).status(), ErrorKind::kUsage,
             "has no parts");
  CheckError(MergeCheck(options, {}, progress).status(), ErrorKind::kUsage, "has no parts");
}

TEST_CASE("a checkpoint that cannot be read says so in parts as well") {
  const TempFolder folder;
  fs::create_directory(folder / "source");
  RequireOk(WriteTextFile(folder / "source/config.json", "{"));
  const CheckReport report =
      Value(CheckAlsoInParts({.source = folder / "source", .baseline = {}, .jobs = 1}));
  CHECK(report.verdict == CheckVerdict::kMalformed);
}

}  // namespace
}  // namespace prepack::testing
