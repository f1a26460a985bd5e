#include "prepack/check/check.h"

#include <fmt/format.h>

#include "catch.h"
#include "text.h"

namespace prepack::testing {
namespace {

constexpr uint64_t kWeights = 160;
constexpr Scheme kInt4 = {.code = CodeType::kU4, .bits = 4, .group_size = 32};

void AddMeasured(std::string_view name, const Scheme& scheme, CheckReport& report) {
  ModuleCheck& module = report.modules.emplace_back();
  module.module = name;
  module.scheme = scheme;
  module.n = 5;
  module.k = 32;
  ModuleStatistics statistics;
  statistics.weights = kWeights;
  statistics.histogram.Add(0, 40);
  statistics.histogram.Add(7, 120);
  statistics.scales = 5;
  statistics.scale_exponents.Add(127 - 10, 5);
  statistics.min_scale = statistics.max_scale = 0x1p-10F;
  KeepStatistics(statistics, module, report.histograms);
}

CheckReport MeasuredReport() {
  CheckReport report;
  report.source = "model";
  report.format = "awq";
  report.verdict = CheckVerdict::kWarnings;
  AddMeasured("layers.0.a", kInt4, report);
  AddMeasured("layers.1.<i>", kInt4, report);
  report.modules[1].findings = {MakeFinding("codes-constant", "layers.1.<i>", "all <8>")};
  return report;
}

TEST_CASE("a page has the verdict, the findings, both histograms and every module") {
  const std::string page = CheckHtml(MeasuredReport());
  CHECK(Contains(page, "<h1>prepack check: <span class=\"unsure\">warnings</span></h1>"));
  CHECK(Contains(page, "<dt>Format</dt><dd>awq</dd>"));
  CHECK(Contains(page,
                 "<td>layers.1.&lt;i&gt;</td><td class=\"unsure\">warning</td>"
                 "<td>codes-constant</td><td>all &lt;8&gt;</td>"));
  // Of both modules together, which have the same scheme.
  CHECK(Contains(page, "<title>0: 80 (25.00 %)</title>"));
  CHECK(Contains(page, "<title>7: 240 (75.00 %)</title>"));
  CHECK(Contains(page, "<title>15: 0 (0.00 %)</title>"));
  CHECK(Contains(page, "<title>2^-10: 10 (100.00 %)</title>"));
  CHECK(Contains(page, "<title>layers.0.a: 25 %</title>"));
  CHECK(Contains(page, "<td class=\"number\" data-v=\"0.25\">25.00 %</td>"));
  CHECK(Contains(page, "<td class=\"number\" data-v=\"0.0009765625\">9.766e-04</td>"));
  CHECK_FALSE(Contains(page, "<i>"));
  CHECK_FALSE(Contains(page, "<h2>Worst modules</h2>"));  // all two are shown
}

TEST_CASE("the worst modules are those furthest from the unquantized model") {
  CheckReport report = MeasuredReport();
  report.baseline = "float";
  report.modules.clear();
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i) names.push_back(fmt::format("layers.{}.a", i));
  for (int i = 0; i < 12; ++i) {
    AddMeasured(names[i], kInt4, report);
    report.modules.back().sqnr_db = 20 + (i * 7) % 12;
  }
  const std::string page = CheckHtml(report);
  const size_t worst = page.find("<h2>Worst modules</h2>");
  const size_t all = page.find("<h2>Modules</h2>");
  const std::string shown = page.substr(worst, all - worst);
  CHECK(shown.find("<td>layers.0.a</td>") < shown.find("<td>layers.7.a</td>"));  // 20, 21
  CHECK(Contains(shown, "<td>layers.7.a</td>"));
  CHECK_FALSE(Contains(shown, "<td>layers.5.a</td>"));  // 31, the best
  CHECK(Contains(page, "<title>layers.5.a: 31 dB</title>"));
}

TEST_CASE("a page without data says that it was not read") {
  CheckReport report = MeasuredReport();
  report.headers_only = true;
  report.histograms.clear();
  for (ModuleCheck& module : report.modules) module.figures.reset();
  const std::string page = CheckHtml(report);
  CHECK(Contains(page, "<dt>Data</dt><dd>not read (--headers)</dd>"));
  CHECK_FALSE(Contains(page, "<h2>Codes and scales</h2>"));
  CHECK_FALSE(Contains(page, "<h2>Along the depth of the model</h2>"));
}

TEST_CASE("signed codes and FP8 are shown in the order of their values") {
  CheckReport report;
  AddMeasured("s8", {.code = CodeType::kS8, .bits = 8}, report);
  AddMeasured("fp8", {.code = CodeType::kF8E4M3, .bits = 8}, report);
  const std::string page = CheckHtml(report);
  CHECK(Contains(page, "<title>-128: 0 (0.00 %)</title>"));
  CHECK(page.find("<title>-128: 0") < page.find("<title>-1: 0"));
  CHECK(page.find("<title>-1: 0") < page.find("<title>7: 120"));
  CHECK(Contains(page, "<title>-448: 0 (0.00 %)</title>"));
  CHECK(Contains(page, "<title>448: 0 (0.00 %)</title>"));
  CHECK_FALSE(Contains(page, "nan"));
}

}  // namespace
}  // namespace prepack::testing
