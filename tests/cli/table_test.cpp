#include "table.h"

#include "catch.h"

namespace prepack::cli {
namespace {

TEST_CASE("columns line up, also with text that is not ASCII") {
  Table table({{"name"}, {"size", Align::kRight}, {"note"}});
  table.AddRow({"a", "1", "x"});
  table.AddRow({"größe", "1000", ""});
  CHECK(table.Render() ==
        "name   size  note\n"
        "a         1  x\n"
        "größe  1000\n");
  CHECK(table.Render(2).starts_with("  name   size  note\n  a"));
}

TEST_CASE("a table without rows is its header") {
  CHECK(Table({{"one"}, {"two"}}).Render() == "one  two\n");
}

}  // namespace
}  // namespace prepack::cli
