#include "prepack/base/memory.h"

#include <cstdint>
#include <thread>

#include "catch.h"

namespace prepack::testing {
namespace {

bool BeginsAtPage(const void* memory) {
  return reinterpret_cast<uintptr_t>(memory) % kPageBufferAlignment == 0;
}

TEST_CASE("scratch memory has its elements, at a page") {
  Scratch<uint32_t> filled(1000, 7);
  CHECK(filled.size() == 1000);
  CHECK(BeginsAtPage(filled.data()));
  CHECK(std::ranges::count(filled, 7U) == 1000);
  const Scratch<uint32_t> none(0);
  CHECK(none.begin() == none.end());
}

TEST_CASE("scratch memory is used again, and never by two at a time") {
  const void* first = nullptr;
  const void* second = nullptr;
  {
    Scratch<uint8_t> outer(5000);
    Scratch<uint8_t> inner(300);
    first = outer.data();
    second = inner.data();
    CHECK(first != second);
  }
  Scratch<uint8_t> outer(5000);
  Scratch<uint8_t> inner(200);
  CHECK(outer.data() == first);
  CHECK(inner.data() == second);
}

TEST_CASE("scratch memory grows") {
  { const Scratch<uint8_t> small(1); }
  Scratch<uint64_t> large(100000, 1);
  CHECK(std::ranges::count(large, 1U) == 100000);
}

TEST_CASE("threads have scratch memory of their own") {
  const Scratch<uint8_t> mine(100, 1);
  const void* theirs = nullptr;
  std::jthread([&] { theirs = Scratch<uint8_t>(100, 2).data(); }).join();
  CHECK(theirs != mine.data());
  CHECK(std::ranges::count(mine, 1) == 100);
}

}  // namespace
}  // namespace prepack::testing
