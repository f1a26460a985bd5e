#include "prepack/check/check.h"

#include "catch.h"
#include "text.h"

namespace prepack::testing {
namespace {

CheckReport Example() {
  CheckReport report;
  report.source = "a<b>&\"c\"";
  report.modules.resize(2);
  report.modules[0].module = "good";
  report.modules[0].figures.emplace();
  report.modules[1].module = "bad\x01";
  report.modules[1].figures.emplace();
  report.modules[1].findings = {MakeFinding("codes-constant", "bad", "all <8>")};
  return report;
}

TEST_CASE("warnings fail only when strict, and text is escaped") {
  const std::string lax = CheckJUnit(Example(), false);
  CHECK(Contains(lax, "<testsuites tests=\"3\" failures=\"0\" errors=\"0\">"));
  CHECK(Contains(lax, "a&lt;b&gt;&amp;&quot;c&quot;"));
  CHECK(Contains(lax, "name=\"bad\\x01\""));
  CHECK(Contains(lax, "<system-out>warning [codes-constant] bad: all &lt;8&gt;\n</system-out>"));
  const std::string strict = CheckJUnit(Example(), true);
  CHECK(Contains(strict, "failures=\"1\""));
  CHECK(Contains(strict, "<failure type=\"codes-constant\" message=\"all &lt;8&gt;\">"));
}

TEST_CASE("a module may be called as the case of the checkpoint is") {
  CheckReport report = Example();
  report.modules[0].module = "checkpoint";
  report.findings = {MakeFinding("codes-constant", "all of it", "of the whole")};
  const std::string xml = CheckJUnit(report, false);
  CHECK(Contains(xml, "name=\"checkpoint\">\n    </testcase>"));
  CHECK(Contains(xml, "name=\"the checkpoint itself\">\n      <system-out>warning"));
}

TEST_CASE("a module that was not looked at is skipped") {
  CheckReport report = Example();
  report.modules[0].figures.reset();
  CHECK(Contains(CheckJUnit(report, false), "skipped=\"1\""));
  CHECK(Contains(CheckJUnit(report, false), "<skipped message=\"the data was not read\"/>"));
}

}  // namespace
}  // namespace prepack::testing
