#include "prepack/base/function_ref.h"

#include <memory>
#include <string>

#include "catch.h"

namespace prepack::testing {
namespace {

int Call(FunctionRef<int(int)> function, int value) {
  return function(value);
}

TEST_CASE("a lambda is called") {
  CHECK(Call([](int value) { return 2 * value; }, 4) == 8);
  int calls = 0;
  const auto count = [&calls](int value) {
    ++calls;
    return value + calls;
  };
  CHECK(Call(count, 10) == 11);
  CHECK(Call(count, 10) == 12);
  CHECK(calls == 2);
}

TEST_CASE("what is called keeps its state") {
  int next = 0;
  auto counter = [next]() mutable { return ++next; };
  const FunctionRef<int()> function = counter;
  CHECK(function() == 1);
  CHECK(function() == 2);
  const FunctionRef<int()> copy = function;
  CHECK(copy() == 3);
}

TEST_CASE("arguments that can only be moved are passed on") {
  const auto take = [](std::unique_ptr<std::string> text) { return *text; };
  const FunctionRef<std::string(std::unique_ptr<std::string>)> function = take;
  CHECK(function(std::make_unique<std::string>("moved")) == "moved");
}

}  // namespace
}  // namespace prepack::testing
