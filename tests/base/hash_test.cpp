#include "base/hash.h"

#include "catch.h"

namespace prepack {
namespace {

TEST_CASE("hashes are what xxh128sum prints") {
  CHECK(Xxh3Hex("") == "99aa06d3014798d86001c324468d497f");
  CHECK(Xxh3Hex("abc") == "06b05ab6733a618578af5f94892f3950");
}

TEST_CASE("a hash does not depend on how the bytes arrive") {
  const std::string text(100'000, 'x');
  Xxh3Hasher hasher;
  for (size_t at = 0; at < text.size(); at += 777) {
    hasher.Update(std::string_view(text).substr(at, 777));
  }
  CHECK(hasher.HexDigest() == Xxh3Hex(text));
  hasher.Reset();
  CHECK(hasher.HexDigest() == Xxh3Hex(""));
}

}  // namespace
}  // namespace prepack
