#include "prepack/formats/finding.h"

#include "catch.h"

namespace prepack::testing {
namespace {

TEST_CASE("findings of one kind become one, which counts the others") {
  FindingTally tally;
  tally.Add("order-missing", "a", "odd");
  tally.Add("order-present", "b", "odd");
  tally.Add("order-missing", "c", "odd");
  tally.Add("order-missing", "d", "odd");
  tally.Add("order-missing", "e", "strange");
  const std::vector<Finding> findings = tally.Take();
  REQUIRE(findings.size() == 3);
  CHECK(findings[0].where == "a");
  CHECK(findings[0].message == "odd");
  CHECK(findings[0].more == 2);
  CHECK(findings[0].id == "order-missing");
  CHECK(findings[0].severity == Severity::kWarning);
  CHECK(findings[1].where == "b");
  CHECK(findings[1].id == "order-present");
  CHECK(findings[1].more == 0);
  CHECK(findings[2].message == "strange");
  CHECK(tally.Take().empty());
}

}  // namespace
}  // namespace prepack::testing
