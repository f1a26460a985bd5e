#include "verify/report_html.h"

#include <string>

#include "catch.h"
#include "example_report.h"

namespace prepack::testing {
namespace {

TEST_CASE("a page has the verdict, the levels, the problems and every module") {
  const std::string page = VerifyHtml(FullReport());
  CHECK(page.starts_with("<!DOCTYPE html>\n"));
  CHECK(Contains(page, "<title>prepack verify: packed: failed</title>"));
  CHECK(Contains(page, "<span class=\"failed\">failed: integrity, gemm</span>"));
  CHECK(Contains(page, "<dt>Source</dt><dd>model</dd>"));
  CHECK(Contains(page, "<dt>Sample</dt><dd>looked at 2 of 3 modules (--sample 0.5, seed 7)</dd>"));
  CHECK(Contains(page,
                 "<tr><td>quality</td><td class=\"not-run\">not run</td>"
                 "<td>no such model</td></tr>"));
  CHECK(Contains(page, "<li>integrity: config.json: it is missing</li>"));
  CHECK(Contains(page, "<li>gemm: module a: the kernel SQNR is too low</li>"));
  CHECK(Contains(page, "<h2>Notes</h2>\n<ul>\n<li>regression: module b: it is new</li>"));
  CHECK(Contains(page, "<tr><td class=\"name\">a</td>"));
  CHECK(Contains(page,
                 "<td class=\"passed\">passed</td><td class=\"passed\">passed</td>"
                 "<td class=\"failed\">failed</td><td class=\"not-run\">not run</td></tr>"));
  CHECK(Contains(page, "not in the sample"));
}

TEST_CASE("a page is whole in itself, in light and dark") {
  const std::string page = VerifyHtml(FullReport());
  CHECK(Contains(page, "prefers-color-scheme: dark"));
  for (const char* outside : {"<script", "<link", "src=", "href=", "url(", "@import", "http"}) {
    CHECK_FALSE(Contains(page, outside));
  }
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
  CHECK_FALSE(Contains(page, "<script"));
  CHECK_FALSE(Contains(page, "\x1b"));
  CHECK(CountOf(page, "&lt;script&gt;alert('&amp;')&lt;/script&gt;&quot;\\x1b") > 20);
}

}  // namespace
}  // namespace prepack::testing
