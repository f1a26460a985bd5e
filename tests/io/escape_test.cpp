#include "prepack/report/page.h"

#include "catch.h"

namespace prepack::testing {
namespace {

TEST_CASE("XML markup, control characters and what is no UTF-8 are escaped") {
  CHECK(EscapeXml("a<b>&\"c\" 'd'") == "a&lt;b&gt;&amp;&quot;c&quot; 'd'");
  CHECK(EscapeXml("a\x01\n\x1b[31m\xff") == "a\\x01\\x0a\\x1b[31m\\xff");
  CHECK(EscapeXml("x · Wᵀ") == "x · Wᵀ");
  CHECK(EscapeXml("]]>") == "]]&gt;");
}

TEST_CASE("XML has no U+FFFE and no U+FFFF") {
  CHECK(EscapeXml("\xEF\xBF\xBE|\xEF\xBF\xBF|\xEF\xBF\xBD|\xEF\xBF\xBC") ==
        "\xEF\xBF\xBD|\xEF\xBF\xBD|\xEF\xBF\xBD|\xEF\xBF\xBC");
}

TEST_CASE("escaped text is cut before it is escaped, not in an entity") {
  CHECK(EscapeXml("&&&&", 2) == "&amp;&amp;…");
  CHECK(EscapeMarkdown("||||", 2) == "&#124;&#124;…");
}

TEST_CASE("names are text in Markdown and stay in their cell") {
  CHECK(EscapeMarkdown("model.layers.0.self_attn.q_proj") == "model.layers.0.self_attn.q_proj");
  CHECK(EscapeMarkdown("a|b`c`") == "a&#124;b\\`c\\`");
  CHECK(EscapeMarkdown("<img src=x>") == "&lt;img src=x&gt;");
  CHECK(EscapeMarkdown("*a* _b_ __c__") == "\\*a\\* \\_b\\_ \\_\\_c\\_\\_");
  CHECK(EscapeMarkdown("[x](http://y) www.z") == "\\[x\\](http&#58;//y) www&#46;z");
  CHECK(EscapeMarkdown("+ item: 1.0e+00") == "\\+ item: 1.0e+00");
  CHECK(EscapeMarkdown("a\nb\\|") == "a\\\\x0ab\\\\&#124;");
}

}  // namespace
}  // namespace prepack::testing
