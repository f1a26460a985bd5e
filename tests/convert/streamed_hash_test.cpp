#include "prepack/packed/output_hash.h"

#include <string>

#include "catch.h"
#include "prepack/base/hash.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST_CASE("what comes in order is hashed on its way, and the rest from the file") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "f", "..0123456789.."));
  const File file = Value(File::OpenForRead(folder / "f"));
  const std::string expected = Xxh3Hex("0123456789");
  StreamedHash hash;
  SECTION("nothing came") {}
  SECTION("all of it came") {
    hash.Offer(0, Bytes("0123"));
    hash.Offer(4, Bytes("456789"));
  }
  SECTION("the end did not come") {
    hash.Offer(0, Bytes("012"));
  }
  SECTION("there was a hole") {
    hash.Offer(0, Bytes("01"));
    hash.Offer(5, Bytes("56"));
    hash.Offer(2, Bytes("2"));
  }
  CHECK(Value(hash.Finish({file, 2, 12})).Hex() == expected);
}

TEST_CASE("what was hashed on its way is what counts") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "f", "abcd"));
  const File file = Value(File::OpenForRead(folder / "f"));
  StreamedHash hash;
  hash.Offer(0, Bytes("AB"));
  CHECK(Value(hash.Finish({file, 0, 4})).Hex() == Xxh3Hex("ABcd"));
}

TEST_CASE("a file that ends too early fails the hash") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "f", "abcd"));
  const File file = Value(File::OpenForRead(folder / "f"));
  StreamedHash hash;
  CHECK_FALSE(hash.Finish({file, 0, 5}).ok());
}

TEST_CASE("only the sources of a unit are hashed with it") {
  const StoredTensor a;
  const StoredTensor b;
  UnitHashes hashes;
  hashes.sources = {&a};
  hashes.of_sources.resize(1);
  hashes.OfferSource(&b, 0, Bytes("xx"));
  hashes.OfferSource(&a, 0, Bytes("01"));
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "f", "??"));
  const File file = Value(File::OpenForRead(folder / "f"));
  CHECK(Value(hashes.of_sources[0].Finish({file, 0, 2})).Hex() == Xxh3Hex("01"));
}

}  // namespace
}  // namespace prepack::testing
