#include "prepack/base/memory.h"

#include <stdexcept>

#include "catch.h"

namespace prepack::testing {
namespace {

using Numbers = FixedVector<int, 3>;

TEST_CASE("a fixed vector holds what was put in, in order") {
  Numbers numbers = {5, 7};
  numbers.push_back(9);
  CHECK(numbers.size() == 3);
  CHECK(numbers[2] == 9);
  CHECK(numbers.front() == 5);
  int sum = 0;
  for (const int number : numbers) sum += number;
  CHECK(sum == 21);
  numbers[0] = 1;
  CHECK(numbers == Numbers{1, 7, 9});
}

TEST_CASE("fixed vectors are equal when their elements are") {
  CHECK(Numbers().empty());
  CHECK(Numbers() == Numbers{});
  CHECK_FALSE(Numbers{1} == Numbers{1, 0});
  CHECK_FALSE(Numbers{1, 2} == Numbers{1, 3});
}

TEST_CASE("a fixed vector never holds too much") {
  Numbers numbers = {1, 2, 3};
  CHECK_THROWS_AS(numbers.push_back(4), std::out_of_range);
  CHECK(numbers == Numbers{1, 2, 3});
  CHECK_THROWS_AS((Numbers{1, 2, 3, 4}), std::out_of_range);
}

}  // namespace
}  // namespace prepack::testing
