#include "prepack/measure/code_windows.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "catch.h"
#include "prepack/base/random.h"

namespace prepack::testing {
namespace {

std::vector<std::byte> Noise(size_t size) {
  SplitMix64 random(9);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next() & 0xFFU);
  return bytes;
}

void Put(std::vector<std::byte>& bytes, size_t at, size_t size, std::string_view text) {
  for (size_t i = 0; i < size; ++i) bytes[at + i] = static_cast<std::byte>(text[i % text.size()]);
}

constexpr std::string_view kPage = "<html><title>503 Service Unavailable</title>\r\n\t</html>";

TEST_CASE("a page of text is found wherever it begins") {
  CHECK_FALSE(FindText(Noise(1 << 16)));
  CHECK_FALSE(FindText({}));
  for (const size_t at :
       {size_t{0}, size_t{1}, size_t{2047}, size_t{2049}, (size_t{1} << 16) - 4096}) {
    CAPTURE(at);
    std::vector<std::byte> bytes = Noise(1 << 16);
    std::ranges::fill(bytes, std::byte{0x88});
    Put(bytes, at, 4096, kPage);
    const auto text = FindText(bytes);
    REQUIRE(text);
    CHECK(text->offset == at);
    CHECK(text->bytes == 4096);
    CHECK(text->beginning == "<html><title>503 Service Unavail");
  }
}

TEST_CASE("codes that happen to be letters are no text") {
  std::vector<std::byte> few = Noise(8192);
  Put(few, 0, 8192, "UTVQYEeUUUUUUUU");  // 2-bit codes that are nearly all 1
  CHECK_FALSE(FindText(few));
  std::vector<std::byte> brief(8192, std::byte{0x88});
  Put(brief, 2048, 400, kPage);
  CHECK_FALSE(FindText(brief));
}

TEST_CASE("stored bytes that are there twice are counted, wherever shares of a tensor begin") {
  constexpr uint64_t kCopied = 4096;
  std::vector<std::byte> bytes = Noise(1 << 16);
  const auto repeated = [&bytes](uint64_t cut) {
    StoredBlocks first, second;
    first.Add(0, std::span(bytes).first(cut));
    second.Add(cut, std::span(bytes).subspan(cut));
    first.Merge(second);
    return first.Repeated();
  };
  CHECK(repeated(1000) == 0);
  std::copy_n(bytes.begin() + 512, kCopied, bytes.begin() + 5 * kCopied + 512);
  CHECK(repeated(0) == kCopied / StoredBlocks::kBytes);
  CHECK(repeated(bytes.size()) == kCopied / StoredBlocks::kBytes);
  // The block that the cut goes through is in neither share.
  CHECK(repeated(1000) == kCopied / StoredBlocks::kBytes - 1);
  // Rows of few values repeat each other in sound modules.
  std::fill(bytes.begin(), bytes.end(), std::byte{0x88});
  CHECK(repeated(1000) == 0);
}

}  // namespace
}  // namespace prepack::testing
