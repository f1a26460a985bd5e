#include "prepack/report/junit_xml.h"

#include <fmt/format.h>

#include <algorithm>

#include "prepack/report/page.h"

namespace prepack {
namespace {

struct Counts {
  size_t tests = 0;
  size_t failures = 0;
  size_t skipped = 0;
};

std::string Lines(std::span<const std::string> lines) {
  std::string text;
  for (const std::string& line : lines) text += EscapeXml(line) + "\n";
  return text;
}

std::string CaseXml(const JUnitCase& test) {
  std::string xml = fmt::format("    <testcase classname=\"{}\" name=\"{}\">\n",
                                EscapeXml(test.class_name), EscapeXml(test.name));
  if (test.failure) {
    xml += fmt::format("      <failure type=\"{}\" message=\"{}\">{}</failure>\n",
                       EscapeXml(test.failure->type), EscapeXml(test.failure->message),
                       Lines(test.failure->lines));
  } else if (test.skipped) {
    xml += fmt::format("      <skipped message=\"{}\"/>\n", EscapeXml(*test.skipped));
  }
  if (!test.output.empty()) {
    xml += fmt::format("      <system-out>{}</system-out>\n", Lines(test.output));
  }
  return xml + "    </testcase>\n";
}

Counts Count(const JUnitSuite& suite) {
  Counts counts{.tests = suite.cases.size()};
  for (const JUnitCase& test : suite.cases) {
    counts.failures += test.failure ? 1 : 0;
    counts.skipped += !test.failure && test.skipped ? 1 : 0;
  }
  return counts;
}

}  // namespace

std::string NameOfWhole(std::string name, std::span<const JUnitCase> others) {
  while (std::ranges::find(others, name, &JUnitCase::name) != others.end()) {
    name = fmt::format("the {} itself", name);
  }
  return name;
}

std::string JUnitXml(std::span<const JUnitSuite> suites) {
  Counts total;
  std::string body;
  for (const JUnitSuite& suite : suites) {
    const Counts counts = Count(suite);
    total.tests += counts.tests;
    total.failures += counts.failures;
    body += fmt::format(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\">\n",
        EscapeXml(suite.name), counts.tests, counts.failures, counts.skipped);
    for (const JUnitCase& test : suite.cases) body += CaseXml(test);
    body += "  </testsuite>\n";
  }
  // Jenkins' schema allows no `skipped` here.
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuites tests=\"{}\" failures=\"{}\" errors=\"0\">\n{}</testsuites>\n",
      total.tests, total.failures, body);
}

}  // namespace prepack
