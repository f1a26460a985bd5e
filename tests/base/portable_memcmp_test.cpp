#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "catch.h"
#include "test_seed.h"

#define memcmp PortableMemcmp
#include "../../packaging/portable/memcmp.cpp"
#undef memcmp

namespace prepack::testing {
namespace {

int SignOf(int value) {
  return value < 0 ? -1 : static_cast<int>(value > 0);
}

TEST_CASE("the memcmp of the portable program orders bytes as that of the libc does") {
  std::mt19937 random(static_cast<unsigned>(Seed(71)));
  for (int i = 0; i < 20000; ++i) {
    // Alike for most of their length, at any place in memory.
    std::string a(random() % 80, ' ');
    for (char& c : a) c = static_cast<char>(random());
    std::string b = a;
    if (!b.empty() && random() % 8 != 0) b[random() % b.size()] = static_cast<char>(random());
    const size_t begin = std::min<size_t>(random() % 9, a.size());
    const size_t bytes = a.size() - begin;
    CHECK(SignOf(PortableMemcmp(a.data() + begin, b.data() + begin, bytes)) ==
          SignOf(std::memcmp(a.data() + begin, b.data() + begin, bytes)));
  }
}

}  // namespace
}  // namespace prepack::testing
