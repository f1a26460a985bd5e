#include "prepack/formats/finding.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "catch.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

TEST_CASE("identifiers of findings are unique and spelt in one way") {
  std::set<std::string_view> seen;
  for (const FindingKind& kind : AllFindingKinds()) {
    CAPTURE(kind.id);
    CHECK(seen.insert(kind.id).second);
    CHECK(kind.id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") ==
          std::string_view::npos);
    CHECK_FALSE(kind.meaning.empty());
  }
  CHECK(seen.size() > 80);
}

TEST_CASE("an identifier is that of its row") {
  const FindingId id = "scale-zero";
  CHECK(id.kind().severity == Severity::kError);
  CHECK(std::string_view(id) == "scale-zero");
}

TEST_CASE("docs/formats.md lists every finding as the table has it") {
  std::ifstream in(Fixture("../docs/formats.md"));
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  REQUIRE_FALSE(text.empty());
  std::string missing;
  for (const FindingKind& kind : AllFindingKinds()) {
    const std::string row =
        fmt::format("| `{}` | {} | {} |\n", kind.id, SeverityName(kind.severity), kind.meaning);
    if (text.find(row) == std::string::npos) missing += row;
  }
  INFO("missing rows:\n" << missing);
  CHECK(missing.empty());
}

}  // namespace
}  // namespace prepack::testing
