#include "prepack/container/safetensors.h"

#include <utility>

#include "catch.h"

namespace prepack::testing {
namespace {

std::vector<uint64_t> DimsOf(const TensorShape& shape) {
  return {shape.begin(), shape.end()};
}

TEST_CASE("a shape holds its dimensions, however many they are") {
  for (const std::vector<uint64_t>& dims :
       {std::vector<uint64_t>{}, {7}, {7, UINT64_MAX}, {1, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8}}) {
    CAPTURE(dims.size());
    const TensorShape shape = dims;
    CHECK(shape.size() == dims.size());
    CHECK(shape.empty() == dims.empty());
    CHECK(DimsOf(shape) == dims);
    if (!dims.empty()) CHECK(shape[dims.size() - 1] == dims.back());
  }
}

TEST_CASE("shapes are copied, moved and compared by their dimensions") {
  const TensorShape matrix = {4, 8};
  const TensorShape experts = {2, 4, 8};
  CHECK_FALSE(matrix == experts);
  CHECK_FALSE(matrix == TensorShape{4, 9});
  CHECK_FALSE(TensorShape{2, 4, 8, 1} == experts);

  TensorShape shape = experts;
  CHECK(shape == experts);
  CHECK(shape.begin() != experts.begin());
  shape = matrix;
  CHECK(shape == matrix);
  shape = experts;
  const TensorShape moved = std::move(shape);
  CHECK(moved == experts);
  TensorShape itself = experts;
  const TensorShape& same = itself;
  itself = same;
  CHECK(itself == experts);
}

TEST_CASE("a shape of two dimensions takes no memory of its own") {
  const TensorShape shape = {4, 8};
  const auto* begin = reinterpret_cast<const std::byte*>(&shape);
  const auto* dims = reinterpret_cast<const std::byte*>(shape.data());
  CHECK((dims >= begin && dims < begin + sizeof shape));
}

}  // namespace
}  // namespace prepack::testing
