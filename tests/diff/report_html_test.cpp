#include "prepack/diff/diff.h"

#include <fmt/format.h>

#include "catch.h"
#include "text.h"

namespace prepack::testing {
namespace {

ModuleDiff Different(std::string name, double noise) {
  ModuleDiff diff;
  diff.module = std::move(name);
  diff.verdict = DiffVerdict::kDifferent;
  diff.a = diff.b = DiffSide{"w4a16 group 128 symmetric", {4, 8}};
  diff.differences = {.elements = 32,
                      .unequal = 8,
                      .beyond = 8,
                      .max_absolute = 0.5,
                      .max_relative = 0.25,
                      .signal = 1000,
                      .noise = noise,
                      .worst = {}};
  return diff;
}

DiffReport Example() {
  DiffReport report;
  report.a = "first";
  report.b = "second";
  report.format_a = "awq";
  report.modules = {Different("layers.0.<i>", 10), Different("layers.1.a", 1)};
  report.modules.push_back({.module = "only",
                            .verdict = DiffVerdict::kOnlyInA,
                            .a = DiffSide{"BF16", {2}},
                            .b = {},
                            .differences = {}});
  report.tensors.push_back({.tensor = "norm",
                            .a = DiffSide{"BF16", {2}},
                            .b = DiffSide{"BF16", {2}},
                            .differences = {}});
  return report;
}

TEST_CASE("a page has the verdict, both sides and every module and tensor") {
  const std::string page = DiffHtml(Example());
  CHECK(Contains(page, "<h1>prepack diff: <span class=\"bad\">different</span></h1>"));
  CHECK(Contains(page, "<dt>A</dt><dd>first (awq)</dd>"));
  CHECK(Contains(page, "<dt>B</dt><dd>second (not quantized)</dd>"));
  CHECK(Contains(page, "<dt>Quantized modules</dt><dd>2 different, 1 only in A</dd>"));
  CHECK(Contains(page, "<dt>Other tensors</dt><dd>1 identical</dd>"));
  CHECK(Contains(page, "<title>layers.0.&lt;i&gt;: 20 dB</title>"));
  CHECK(Contains(page,
                 "<td class=\"bad\">different</td><td class=\"number\" data-v=\"8\">8</td>"
                 "<td class=\"number\" data-v=\"0.5\">0.5</td>"
                 "<td class=\"number\" data-v=\"0.25\">0.25</td>"
                 "<td class=\"number\" data-v=\"30\">30.0</td>"));
  CHECK(Contains(page, "<title>layers.1.a: share that differs 25.00 %</title>"));
  CHECK(Contains(page, "<td>only</td><td>BF16 [2]</td><td>-</td><td class=\"bad\">only in A</td>"));
  CHECK(Contains(page,
                 "<td>norm</td><td>BF16 [2]</td><td>BF16 [2]</td>"
                 "<td class=\"good\">identical</td>"));
  CHECK_FALSE(Contains(page, "<i>"));
}

TEST_CASE("of many modules those that differ most come first") {
  DiffReport report = Example();
  for (int i = 2; i < 14; ++i) {
    report.modules.push_back(Different(fmt::format("layers.{}.a", i), 1.0 / i));
  }
  const std::string page = DiffHtml(report);
  const size_t begin = page.find("<h2>What differs most</h2>");
  const std::string most = page.substr(begin, page.find("<h2>Modules</h2>") - begin);
  CHECK(most.find("<td>only</td>") < most.find("<td>layers.0."));
  CHECK(most.find("<td>layers.0.") < most.find("<td>layers.1.a"));
  CHECK_FALSE(Contains(most, "<td>layers.13.a"));
}

TEST_CASE("two that mean the same are called so") {
  DiffReport report = Example();
  report.modules.clear();
  CHECK(Contains(DiffHtml(report), "<span class=\"good\">the same</span>"));
  CHECK(ModuleVerdicts(report) == "none");
}

}  // namespace
}  // namespace prepack::testing
