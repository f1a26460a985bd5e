#include "prepack/base/hash.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "catch.h"

namespace prepack::testing {
namespace {

// What `xxh128sum` of xxHash 0.8.1 prints for the same bytes.
TEST_CASE("hashes are those of xxh128sum") {
  CHECK(Xxh3Hex("") == "99aa06d3014798d86001c324468d497f");
  CHECK(Xxh3Hex("a") == "a96faf705af16834e6c632b61e964e1f");
  CHECK(Xxh3Hex("prepack") == "c813628bedf2bcd90f1e866fb0b8f21d");

  std::vector<std::byte> bytes(1000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((i * 7 + 3) % 256);
  CHECK(Xxh3Hex(bytes) == "6bcc7eff62da44c26c4f14bd97bd9e82");

  bytes.resize(1'000'000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 251);
  CHECK(Xxh3Hex(bytes) == "00d4a9d9f77c7d2ddf99c4163891c544");
}

TEST_CASE("a stream hashes like the whole, however it is cut") {
  std::vector<std::byte> bytes(10'000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 253);
  const std::string whole = Xxh3Hex(bytes);
  for (const size_t piece : {size_t{1}, size_t{63}, size_t{64}, size_t{257}, size_t{9999}}) {
    CAPTURE(piece);
    Xxh3Hasher hasher;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      hasher.Update(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    }
    hasher.Update(std::span<const std::byte>());
    CHECK(hasher.HexDigest() == whole);
  }
}

TEST_CASE("a digest does not end a stream, Reset does") {
  Xxh3Hasher hasher;
  hasher.Update("pre");
  CHECK(hasher.HexDigest() == Xxh3Hex("pre"));
  hasher.Update("pack");
  CHECK(hasher.HexDigest() == Xxh3Hex("prepack"));
  hasher.Reset();
  CHECK(hasher.HexDigest() == Xxh3Hex(""));
}

TEST_CASE("a hasher keeps its state when moved") {
  Xxh3Hasher first;
  first.Update("pre");
  Xxh3Hasher second = std::move(first);
  second.Update("pack");
  CHECK(second.HexDigest() == "c813628bedf2bcd90f1e866fb0b8f21d");
}

TEST_CASE("a hash comes back from its text") {
  const std::string text = "00a4a9d9f77c7d2d0f99c4163891c544";
  const std::optional<Hash128> hash = ParseHash128(text);
  REQUIRE(hash);
  CHECK(hash->high == 0x00a4a9d9f77c7d2d);
  CHECK(hash->low == 0x0f99c4163891c544);
  CHECK(hash->Hex() == text);
  CHECK(Xxh3("a").Hex() == Xxh3Hex("a"));
}

TEST_CASE("a text that is no hash is none") {
  const std::string digits(32, '7');
  CHECK(ParseHash128(digits));
  for (const std::string& text :
       {std::string(), digits + "7", digits.substr(1), "A" + digits.substr(1),
        "-" + digits.substr(1), digits.substr(1) + " "}) {
    INFO(text);
    CHECK_FALSE(ParseHash128(text));
  }
}

TEST_CASE("texts differ if their hashes do") {
  CHECK(HashesDiffer({}));
  const std::vector<std::string_view> names = {"a", "b", "", "aa"};
  CHECK(HashesDiffer(names));
  const std::vector<std::string_view> twins = {"a", "b", "", "aa", "b"};
  CHECK_FALSE(HashesDiffer(twins));
}

}  // namespace
}  // namespace prepack::testing
