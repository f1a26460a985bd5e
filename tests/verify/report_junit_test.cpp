#include "prepack/verify/report/writers.h"

#include <string>

#include "catch.h"
#include "example_report.h"
#include "text.h"

namespace prepack::testing {
namespace {

// The text of one test case, empty when there is none.
std::string CaseText(const std::string& xml, const std::string& level, const std::string& name) {
  const size_t begin =
      xml.find("<testcase classname=\"prepack.verify." + level + "\" name=\"" + name + "\">");
  if (begin == std::string::npos) return "";
  return xml.substr(begin, xml.find("</testcase>", begin) - begin);
}

TEST_CASE("there is a case for every module and the folder on every level") {
  const std::string xml = VerifyJUnit(ExampleReport(2));
  CHECK(Contains(xml, "<testsuites tests=\"9\" failures=\"0\" errors=\"0\">"));
  CHECK(CountOf(xml, "tests=\"3\" failures=\"0\" errors=\"0\" skipped=\"0\"") == 3);
  CHECK(CountOf(xml, "<testcase") == 9);
  CHECK_FALSE(Contains(xml, "<skipped"));
  CHECK_FALSE(Contains(xml, "quality"));
  CHECK(Contains(
      CaseText(xml, "gemm", "a"),
      "<system-out>GEMM: brg_matmul:avx2, x f32 (bf16 values), 128 output channels\n"
      "gaussian activations, 16 rows: kernel (at least 48.0): SQNR 55.5 dB, worst channel n 7: "
      "51.5 dB, cosine 0.999990, largest error 0.125\n"));
  CHECK(Contains(CaseText(xml, "exactness", "b"), "exact: yes, largest difference of a scale: 0"));
  CHECK(Contains(CaseText(xml, "integrity", "folder"), "sizes, hashes, headers"));
}

TEST_CASE("what failed fails, and what did not run is skipped") {
  VerifyReport report = FullReport();
  report.regression.FailModule("b", "the kernel SQNR fell");
  const std::string xml = VerifyJUnit(report);
  CHECK(Contains(xml, "<testsuites tests=\"20\" failures=\"3\" errors=\"0\">"));
  CHECK(Contains(xml,
                 "prepack verify packed: integrity\" tests=\"4\" failures=\"1\" errors=\"0\" "
                 "skipped=\"1\">"));
  CHECK(
      Contains(CaseText(xml, "integrity", "folder"),
               "<failure type=\"integrity\" message=\"it is missing\">config.json: it is missing"));
  CHECK(Contains(CaseText(xml, "gemm", "a"),
                 "<failure type=\"gemm\" message=\"the kernel SQNR is too low\">module a: the"));
  CHECK(Contains(CaseText(xml, "gemm", "a"), "agreement with model of vllm-cpu/wna16: inf dB"));
  CHECK_FALSE(Contains(CaseText(xml, "gemm", "folder"), "<failure"));  // it is the module's
  CHECK(Contains(CaseText(xml, "gemm", "folder"), "checked 2 of 3 modules"));
  CHECK(Contains(CaseText(xml, "gemm", "c"), "<skipped message=\"not in the sample\"/>"));
  CHECK(Contains(CaseText(xml, "quality", "b"), "<skipped message=\"no such model\"/>"));
  CHECK(Contains(CaseText(xml, "quality", "folder"), "<skipped message=\"no such model\"/>"));
  CHECK(Contains(CaseText(xml, "quality", "a"), "weight SQNR 20.5 dB"));
  CHECK(Contains(CaseText(xml, "regression", "b"), "message=\"the kernel SQNR fell\""));
  CHECK_FALSE(Contains(CaseText(xml, "regression", "a"), "<failure"));
  CHECK(Contains(CaseText(xml, "regression", "c"), "<skipped message=\"not in the sample\"/>"));
}

TEST_CASE("a level that failed always has a case that failed") {
  VerifyReport report = ExampleReport(1);
  report.level(Level::kGemm).FailModule("a", "too low");  // but nobody set the module's state
  const std::string folder = CaseText(VerifyJUnit(report), "gemm", "folder");
  CHECK(Contains(folder, "<failure type=\"gemm\" message=\"too low\">module a: too low"));
  report.level(Level::kGemm).problems.clear();
  CHECK(Contains(CaseText(VerifyJUnit(report), "gemm", "folder"), "message=\"failed\""));
  // What is missing from the folder has no case of its own.
  report = ExampleReport(1);
  report.against = "r.json";
  report.regression.FailModule("gone", "it was there");
  CHECK(Contains(CaseText(VerifyJUnit(report), "regression", "folder"),
                 "<failure type=\"regression\" message=\"it was there\">"));
}

TEST_CASE("a module that could not be judged is skipped with its own reason") {
  VerifyReport report = ExampleReport(1);
  report.modules[0].state(Level::kGemm) = LevelState::kNotRun;
  report.level(Level::kGemm).state = LevelState::kNotRun;
  report.level(Level::kGemm).problems.push_back({"a", "module a", "it proves nothing"});
  const std::string xml = VerifyJUnit(report);
  CHECK(Contains(CaseText(xml, "gemm", "a"), "<skipped message=\"it proves nothing\"/>"));
  CHECK(Contains(CaseText(xml, "gemm", "folder"), "<skipped message=\"not run\"/>"));
}

TEST_CASE("a module may be called as the case of the folder is") {
  VerifyReport report = ExampleReport(2);
  report.modules[0].module = "folder";
  std::string xml = VerifyJUnit(report);
  CHECK(Contains(CaseText(xml, "gemm", "folder"), "gaussian activations"));
  CHECK(Contains(CaseText(xml, "integrity", "the folder itself"), "sizes, hashes, headers"));
  report.modules[1].module = "the folder itself";
  xml = VerifyJUnit(report);
  CHECK(CountOf(xml, "name=\"the the folder itself itself\"") == 3);
  CHECK(CountOf(xml, "<testcase") == 9);
}

TEST_CASE("notes are told, and names are escaped") {
  VerifyReport report = ExampleReport(1);
  report.modules[0].module = "<a>&\"\x01";
  report.folder = "p<q>";
  report.level(Level::kGemm).notes = {{report.modules[0].module, "module", "slow & old"},
                                      {"", "engine", "none <here>"}};
  const std::string xml = VerifyJUnit(report);
  CHECK(Contains(xml, "name=\"&lt;a&gt;&amp;&quot;\\x01\""));
  CHECK(Contains(xml, "prepack verify p&lt;q&gt;: gemm"));
  CHECK(Contains(xml, "module: slow &amp; old\n"));
  CHECK(Contains(CaseText(xml, "gemm", "folder"), "engine: none &lt;here&gt;\n"));
}

}  // namespace
}  // namespace prepack::testing
