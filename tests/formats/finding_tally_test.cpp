#include "formats/finding_tally.h"

#include "catch.h"

namespace prepack {
namespace {

TEST_CASE("Findings of one kind become one, which counts the others") {
  FindingTally tally;
  tally.Add("a", "odd");
  tally.Add("b", "strange");
  tally.Add("c", "odd");
  tally.Add("d", "odd");
  const std::vector<Finding> findings = tally.Take();
  REQUIRE(findings.size() == 2);
  CHECK(findings[0].where == "a");
  CHECK(findings[0].message == "odd (and 2 more like it)");
  CHECK(findings[1].where == "b");
  CHECK(findings[1].message == "strange");
  CHECK(tally.Take().empty());
}

}  // namespace
}  // namespace prepack
