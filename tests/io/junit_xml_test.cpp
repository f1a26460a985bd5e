#include "prepack/report/junit_xml.h"

#include "catch.h"

namespace prepack::testing {
namespace {

JUnitCase Case(std::string name) {
  JUnitCase test;
  test.class_name = "a.b";
  test.name = std::move(name);
  return test;
}

TEST_CASE("suites, cases and their counts are written") {
  JUnitSuite one{.name = "one & only", .cases = {Case("good"), Case("bad"), Case("left out")}};
  one.cases[0].output = {"12.5 dB", "<raw>"};
  one.cases[1].failure = JUnitFailure{.type = "t", .message = "\"no\"", .lines = {"no", "and no"}};
  one.cases[2].skipped = "not in the sample";
  const JUnitSuite two{.name = "two", .cases = {Case("x")}};
  const std::vector<JUnitSuite> suites = {one, two};
  CHECK(JUnitXml(suites) ==
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<testsuites tests=\"4\" failures=\"1\" errors=\"0\">\n"
        "  <testsuite name=\"one &amp; only\" tests=\"3\" failures=\"1\" errors=\"0\" "
        "skipped=\"1\">\n"
        "    <testcase classname=\"a.b\" name=\"good\">\n"
        "      <system-out>12.5 dB\n&lt;raw&gt;\n</system-out>\n"
        "    </testcase>\n"
        "    <testcase classname=\"a.b\" name=\"bad\">\n"
        "      <failure type=\"t\" message=\"&quot;no&quot;\">no\nand no\n</failure>\n"
        "    </testcase>\n"
        "    <testcase classname=\"a.b\" name=\"left out\">\n"
        "      <skipped message=\"not in the sample\"/>\n"
        "    </testcase>\n"
        "  </testsuite>\n"
        "  <testsuite name=\"two\" tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"0\">\n"
        "    <testcase classname=\"a.b\" name=\"x\">\n"
        "    </testcase>\n"
        "  </testsuite>\n"
        "</testsuites>\n");
}

TEST_CASE("a case that failed is not skipped, too") {
  JUnitSuite suite{.name = "s", .cases = {Case("x")}};
  suite.cases[0].failure = JUnitFailure{};
  suite.cases[0].skipped = "no";
  const std::string xml = JUnitXml({&suite, 1});
  CHECK(xml.find("failures=\"1\" errors=\"0\" skipped=\"0\"") != std::string::npos);
  CHECK(xml.find("<skipped") == std::string::npos);
}

}  // namespace
}  // namespace prepack::testing
