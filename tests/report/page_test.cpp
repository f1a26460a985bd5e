#include "prepack/report/page.h"

#include "catch.h"
#include "html_text.h"
#include "text.h"

namespace prepack::testing {
namespace {

TEST_CASE("a page is whole in itself, in light and dark") {
  const std::string page = HtmlPage("title", "<p>body</p>\n");
  CHECK(page.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"));
  CHECK(page.ends_with("</html>\n"));
  CHECK(Contains(page, "<title>title</title>"));
  CHECK(Contains(page, "<p>body</p>"));
  CHECK(Contains(page, "prefers-color-scheme: dark"));
  CHECK(Contains(page, "@media print"));
  CHECK(CountOf(page, "<script") == 1);
  for (const char* outside : {"<link", "src=", "href=", "url(", "@import", "http", "fetch"}) {
    CHECK_FALSE(Contains(page, outside));
  }
}

TEST_CASE("text of a page is escaped") {
  const std::string markup(kMarkup);
  const std::string escaped(kEscaped);
  CHECK(Contains(HtmlPage(markup, ""), "<title>" + escaped + "</title>"));
  CHECK(HtmlSection(markup, "x") == "<section>\n<h2>" + escaped + "</h2>\nx</section>\n");
  CHECK(HtmlFoldedSection(markup, "x") ==
        "<details>\n<summary><h2>" + escaped + "</h2></summary>\nx</details>\n");
  CHECK(HtmlFacts({{markup, markup}}) ==
        "<dl>\n<dt>" + escaped + "</dt><dd>" + escaped + "</dd>\n</dl>\n");
  CHECK(HtmlList({markup}) == "<ul>\n<li>" + escaped + "</li>\n</ul>\n");
  CHECK(HtmlToned(Tone::kBad, markup) == "<span class=\"bad\">" + escaped + "</span>");
}

TEST_CASE("what has nothing in it is left out") {
  CHECK(HtmlSection("heading", "").empty());
  CHECK(HtmlFoldedSection("heading", "").empty());
  CHECK(HtmlFacts({}).empty());
  CHECK(HtmlFacts({{"name", ""}}).empty());
  CHECK(HtmlFacts({{"name", ""}, {"other", "value"}}) ==
        "<dl>\n<dt>other</dt><dd>value</dd>\n</dl>\n");
  CHECK(HtmlList({}).empty());
}

}  // namespace
}  // namespace prepack::testing
