#include <string>

#include "catch.h"
#include "prepack/base/status.h"

namespace prepack::testing {
namespace {

TEST_CASE("ordinary names stay as they are") {
  CHECK(Printable("") == "");
  CHECK(Printable("model.layers.0.mlp.down_proj") == "model.layers.0.mlp.down_proj");
  CHECK(Printable(" !~\\\"'") == " !~\\\"'");
  CHECK(Printable("größe 模型 😀") == "größe 模型 😀");
}

TEST_CASE("control characters cannot reach the terminal") {
  CHECK(Printable("\x1b[31mred\x1b[0m") == "\\x1b[31mred\\x1b[0m");
  CHECK(Printable("a\nb\tc\rd") == "a\\x0ab\\x09c\\x0dd");
  CHECK(Printable("\x7f") == "\\x7f");
  CHECK(Printable(std::string_view("a\0b", 3)) == "a\\x00b");
  // U+009B is an escape sequence in one character, well-formed as it is.
  CHECK(Printable("\xc2\x9b"
                  "31m") == "\\xc2\\x9b31m");
  CHECK(Printable("\xc2\xa0") == "\xc2\xa0");  // U+00A0, the first that is no control character
}

TEST_CASE("what cannot be seen, or turns text around, is shown as numbers") {
  CHECK(Printable("a\u202Eb") == "a\\xe2\\x80\\xaeb");  // right-to-left override
  CHECK(Printable("\u2066") == "\\xe2\\x81\\xa6");      // isolate
  CHECK(Printable("\u200B|\u200F|\u061C|\uFEFF") ==
        "\\xe2\\x80\\x8b|\\xe2\\x80\\x8f|\\xd8\\x9c|\\xef\\xbb\\xbf");
  CHECK(Printable("\u2028") == "\\xe2\\x80\\xa8");  // line separator
  // Their neighbours are characters like others.
  CHECK(Printable("\u200A\u2010\u2027\u202F\u205F\u2070") ==
        "\u200A\u2010\u2027\u202F\u205F\u2070");
}

TEST_CASE("bytes that are no UTF-8 are shown as numbers") {
  struct Case {
    std::string_view bytes;
    std::string_view shown;
  };
  const Case cases[] = {
      {"\x80", "\\x80"},           // continuation without a start
      {"\xff", "\\xff"},           // never valid
      {"\xc3", "\\xc3"},           // cut off
      {"\xe2\x82", "\\xe2\\x82"},  // cut off
      {"\xc3("
       "",
       "\\xc3("},                                    // start without continuation
      {"\xc0\x80", "\\xc0\\x80"},                    // overlong zero
      {"\xe0\x80\xaf", "\\xe0\\x80\\xaf"},           // overlong slash
      {"\xf0\x80\x80\xaf", "\\xf0\\x80\\x80\\xaf"},  // overlong slash
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},           // surrogate
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},  // above U+10FFFF
      {"\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80"},
      {"\xe2\x82\xac", "\xe2\x82\xac"},  // and a good one
      {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.shown);
    CHECK(Printable(c.bytes) == c.shown);
  }
}

TEST_CASE("every single byte comes out printable") {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string shown = Printable(std::string(1, static_cast<char>(byte)));
    CAPTURE(byte, shown);
    CHECK((shown.size() == 1 || shown.size() == 4));
    for (const char c : shown) CHECK((c >= 0x20 && c < 0x7F));
  }
}

TEST_CASE("JSON keeps its meaning, and hides nothing") {
  CHECK(PrintableJson("{\"a\": \"\xe2\x82\xac\n\"}") == "{\"a\": \"\xe2\x82\xac\n\"}");
  CHECK(PrintableJson("\"a\xe2\x80\xae"
                      "b\"") == "\"a\\u202eb\"");
  CHECK(PrintableJson("\"\x7f\xc2\x85\xef\xbb\xbf\"") == "\"\\u007f\\u0085\\ufeff\"");
  CHECK(PrintableJson("\xff\xe2\x80") == "\xff\xe2\x80");  // no UTF-8: no document of ours
}

TEST_CASE("long text is cut, with an ellipsis") {
  CHECK(Printable(std::string(200, 'a')) == std::string(200, 'a'));
  CHECK(Printable(std::string(201, 'a')) == std::string(200, 'a') + "…");
  CHECK(Printable("abcdef", 3) == "abc…");
  CHECK(Printable("abc", 3) == "abc");
  // Never inside a character or an escape, so the cut may come some bytes late.
  CHECK(Printable("ab€cd", 3) == "ab€…");
  CHECK(Printable("\n\n\n", 5) == "\\x0a\\x0a…");
  CHECK(Printable(std::string(1'000'000, '\x01')).size() == 200 + std::string("…").size());
}

}  // namespace
}  // namespace prepack::testing
