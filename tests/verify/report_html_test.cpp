#include "prepack/verify/report/writers.h"

#include <string>

#include "catch.h"
#include "example_report.h"
#include "text.h"

namespace prepack::testing {
namespace {

TEST_CASE("a page has the verdict, the levels, the problems and every module") {
  const std::string page = VerifyHtml(FullReport());
  CHECK(page.starts_with("<!DOCTYPE html>\n"));
  CHECK(Contains(page, "<title>prepack verify: packed: failed</title>"));
  CHECK(Contains(page, "<span class=\"bad\">failed: integrity, gemm</span>"));
  CHECK(Contains(page, "<dt>Source</dt><dd>model</dd>"));
  CHECK(Contains(page, "<dt>Sample</dt><dd>checked 2 of 3 modules (--sample 0.5, seed 7)</dd>"));
  CHECK(Contains(page,
                 "<tr><td>quality</td><td class=\"unsure\">not run</td>"
                 "<td>no such model</td></tr>"));
  CHECK(Contains(page, "<li>integrity: config.json: it is missing</li>"));
  CHECK(Contains(page, "<li>gemm: module a: the kernel SQNR is too low</li>"));
  CHECK(Contains(page, "<h2>Notes</h2>\n<ul>\n<li>regression: module b: it is new</li>"));
  CHECK(Contains(page, "<tr><td>a</td><td>vllm-cpu/wna16</td><td>yes</td>"));
  CHECK(Contains(page, "<td class=\"number\" data-v=\"52.2\">52.2</td>"));
  CHECK(Contains(page,
                 "<td class=\"good\">passed</td><td class=\"good\">passed</td>"
                 "<td class=\"bad\">failed</td><td class=\"unsure\">not run</td></tr>"));
  CHECK(Contains(page, "not in the sample"));
}

TEST_CASE("a page shows the figures along the depth, with their bars") {
  const std::string page = VerifyHtml(FullReport());
  CHECK(Contains(page, "<title>b: 52.25 dB</title>"));  // end to end
  CHECK(Contains(page, "<title>b: 55.5 dB</title>"));   // kernel
  CHECK(Contains(page, "<title>a: 20.5 dB</title>"));   // weights
  CHECK(Contains(page, ">at least 40</text>"));
  CHECK(Contains(page, ">at least 48</text>"));
  CHECK(Contains(page, "<title>b: kernel dB 55.5</title>"));
  // Worst of all, and blank for what was not multiplied.
  CHECK_FALSE(Contains(page, "<title>a: kernel dB"));
  CHECK_FALSE(Contains(page, "<title>c: kernel dB"));
}

TEST_CASE("a page of 400 modules is below 2 MB") {
  VerifyReport report = ExampleReport(400);
  for (size_t i = 0; i < report.modules.size(); ++i) {
    report.modules[i].module =
        fmt::format("model.language_model.layers.{}.self_attn.some_proj_{}", i / 7, i % 7);
    report.modules[i].quality =
        QualityFigures{.weight_sqnr_db = 20.5, .output_sqnr_db = 19.5, .below_peers_db = {}};
  }
  const std::string page = VerifyHtml(report);
  CHECK(page.size() < 1'000'000);
  CHECK(Contains(page, "<h2>Closest to the bar of their kernels</h2>"));
}

TEST_CASE("a page without problems has no heading for them") {
  const std::string page = VerifyHtml(ExampleReport());
  CHECK_FALSE(Contains(page, "<h2>Problems</h2>"));
  CHECK_FALSE(Contains(page, "<h2>Notes</h2>"));
  CHECK_FALSE(Contains(page, "<dt>Sample</dt>"));
}

TEST_CASE("nothing of a file is markup") {
  constexpr std::string_view kEvil = "<script>alert('&')</script>\"\x1b";
  VerifyReport report = FullReport();
  report.folder = report.source = report.baseline = report.activations = kEvil;
  report.target = report.engine = report.against = kEvil;
  for (ModuleVerification& module : report.modules) module.module = module.layout = kEvil;
  report.modules[0].gemm->implementation = report.modules[0].gemm->activations = kEvil;
  for (LevelResult& level : report.levels) {
    level.reason = kEvil;
    level.notes.push_back({std::string(kEvil), std::string(kEvil), std::string(kEvil)});
    level.Fail(std::string(kEvil), std::string(kEvil));
  }
  const std::string page = VerifyHtml(report);
  CHECK(CountOf(page, "<script") == 1);  // its own
  CHECK_FALSE(Contains(page, "\x1b"));
  CHECK(CountOf(page, "&lt;script&gt;alert('&amp;')&lt;/script&gt;&quot;\\x1b") > 20);
}

}  // namespace
}  // namespace prepack::testing
