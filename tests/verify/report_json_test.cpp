#include "prepack/verify/report/writers.h"

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "example_report.h"
#include "prepack/io/file.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

Json Changed(const std::function<void(Json&)>& change) {
  Json json = VerifyReportJson(FullReport());
  change(json);
  return json;
}

void CheckRefused(const std::function<void(Json&)>& change, std::string_view text,
                  ErrorKind kind = ErrorKind::kMalformed) {
  CheckError(ParseVerifyReport(Changed(change).dump(), "r.json").status(), kind, text);
}

TEST_CASE("a report says every figure, and what kind of figure it is") {
  const Json json = VerifyReportJson(FullReport());
  CHECK(json["kind"] == "prepack-verify");
  CHECK(json["version"] == 2);
  CHECK(json["verdict"] == "failed");
  CHECK(json["source_found"] == true);
  CHECK(json["sample"] == Json{{"fraction", 0.5}, {"seed", 7}, {"modules", 2}});
  CHECK(json["levels"]["gemm"]["problems"][0] ==
        Json{{"module", "a"}, {"where", "module a"}, {"message", "the kernel SQNR is too low"}});
  CHECK(json["levels"]["integrity"]["problems"][0]["module"].is_null());
  CHECK(json["regression"]["against"] == "earlier.json");
  const Json& a = json["modules"][0];
  CHECK(a["levels"] == Json{{"integrity", "passed"},
                            {"exactness", "passed"},
                            {"gemm", "failed"},
                            {"quality", "not run"}});
  CHECK(a["gemm"]["inputs"][0]["kernel"]["sqnr_db"] == 55.5);
  CHECK(a["gemm"]["inputs"][0]["kernel"]["worst_channel"] == 7);
  CHECK(a["gemm"]["inputs"][1]["kernel"]["sqnr_db"] == "infinite");
  CHECK(a["gemm"]["inputs"][2]["kernel"]["sqnr_db"] == "nothing to compare");
  CHECK(a["gemm"]["inputs"][2]["end_to_end"]["sqnr_db"] == "-infinite");
  CHECK(a["gemm"]["inputs"][2]["end_to_end_bar_db"].is_null());
  CHECK(a["quality"]["output_sqnr_db"].is_null());
  CHECK(json["modules"][2]["gemm"].is_null());
  CHECK(json["modules"][2]["looked_at"] == false);
}

TEST_CASE("a report that is read back is the same report") {
  for (const VerifyReport& report : {FullReport(), ExampleReport(), VerifyReport{}}) {
    const Json json = VerifyReportJson(report);
    const VerifyReport read = Value(ParseVerifyReport(json.dump(), "r.json"));
    CHECK(VerifyReportJson(read).dump(1) == json.dump(1));
  }
}

TEST_CASE("a file that is no report, or one of another version, is refused") {
  CheckError(ParseVerifyReport("{", "r.json").status(), ErrorKind::kMalformed, "r.json");
  CheckError(ParseVerifyReport("[]", "r.json").status(), ErrorKind::kMalformed, "not an object");
  CheckError(ParseVerifyReport("{}", "r.json").status(), ErrorKind::kMalformed,
             "Give a file that `prepack verify --json` printed");
  CheckRefused([](Json& json) { json["kind"] = "prepack-check"; },
               "found prepack-check, expected prepack-verify");
  CheckRefused([](Json& json) { json["version"] = 1; }, "found 1, expected 2",
               ErrorKind::kUnsupported);
  CheckRefused([](Json& json) { json["version"] = 3; }, "Verify the earlier folder again",
               ErrorKind::kUnsupported);
  CheckRefused([](Json& json) { json["version"] = "2"; }, "\"version\" has the wrong type");
}

TEST_CASE("a field that is missing or wrong is named") {
  CheckRefused([](Json& json) { json.erase("folder"); }, "r.json: field \"folder\" is missing");
  CheckRefused([](Json& json) { json.erase("source"); }, "field \"source\" is missing");
  CheckRefused([](Json& json) { json["source_found"] = 1; }, "field \"source_found\"");
  CheckRefused([](Json& json) { json["levels"].erase("gemm"); }, "r.json: levels: field \"gemm\"");
  CheckRefused([](Json& json) { json["levels"]["gemm"]["state"] = "fine"; },
               "r.json: levels: gemm: field \"state\" is not a state (found fine");
  CheckRefused([](Json& json) { json["levels"]["gemm"]["problems"][0]["where"] = 1; },
               "gemm: problems[0]: field \"where\"");
  CheckRefused([](Json& json) { json["levels"]["gemm"]["notes"] = 1; }, "field \"notes\"");
  CheckRefused([](Json& json) { json["regression"] = nullptr; }, "field \"regression\"");
  CheckRefused([](Json& json) { json["sample"]["fraction"] = 0; }, "sample: field \"fraction\"");
  CheckRefused([](Json& json) { json["sample"]["fraction"] = "nothing to compare"; },
               "sample: field \"fraction\"");
  CheckRefused([](Json& json) { json["modules"] = Json::object(); }, "field \"modules\"");
  CheckRefused([](Json& json) { json["modules"][1] = 3; }, "modules[1]: not an object");
  CheckRefused([](Json& json) { json["modules"][1]["shape"] = {1}; },
               "modules[1]: field \"shape\" is not [N, K]");
  CheckRefused([](Json& json) { json["modules"][1]["shape"] = 1; }, "modules[1]: field \"shape\"");
  CheckRefused([](Json& json) { json["modules"][1]["module"] = "a"; },
               "modules[1]: the report has this module twice (found a)");
  CheckRefused([](Json& json) { json["modules"][0]["levels"]["gemm"] = nullptr; },
               "modules[0]: levels: field \"gemm\"");
  CheckRefused([](Json& json) { json["modules"][0]["exact"] = "yes"; }, "field \"exact\"");
  CheckRefused([](Json& json) { json["modules"][0]["gemm"]["inputs"] = 0; },
               "modules[0]: gemm: field \"inputs\"");
  CheckRefused([](Json& json) { json["modules"][0]["gemm"]["inputs"][1]["rows"] = -1; },
               "modules[0]: gemm: inputs[1]: field \"rows\"");
  CheckRefused(
      [](Json& json) { json["modules"][0]["gemm"]["inputs"][1]["kernel"]["sqnr_db"] = "inf"; },
      "modules[0]: gemm: inputs[1]: kernel: field \"sqnr_db\" is not a figure (found inf, expected "
      "a "
      "number, \"infinite\"");
  CheckRefused(
      [](Json& json) { json["modules"][0]["gemm"]["inputs"][1]["kernel"]["sqnr_db"] = nullptr; },
      "field \"sqnr_db\"");
  CheckRefused([](Json& json) { json["modules"][0]["quality"]["weight_sqnr_db"] = true; },
               "modules[0]: quality: field \"weight_sqnr_db\"");
}

TEST_CASE("a report is read from a file of bounded size") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "r.json", VerifyReportJson(FullReport()).dump()));
  CHECK(Value(ReadVerifyReport(folder / "r.json")).modules.size() == 3);
  CheckError(ReadVerifyReport(folder / "none.json").status(), ErrorKind::kSystem, "none.json");
  RequireOk(WriteTextFile(folder / "big.json", "{}"));
  std::filesystem::resize_file(folder / "big.json", kMaxReportBytes + 1);  // sparse
  CheckError(ReadVerifyReport(folder / "big.json").status(), ErrorKind::kMalformed, "big.json");
}

}  // namespace
}  // namespace prepack::testing
