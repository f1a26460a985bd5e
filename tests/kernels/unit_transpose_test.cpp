// Units change places as the closed form says, whatever the shape.

#include "kernels/unit_transpose.h"

#include "catch.h"
#include "kernels/edge_buffer.h"

namespace prepack {
namespace {

struct Shape {
  size_t rows;
  size_t cols;
  size_t in_gap;  // bytes between rows
  size_t out_gap;
};

// Everything around the blocks of any unit (4 to 32 rows by 2 to 16 columns) and around the
// units of a cache line, dense or not, longer on either side.
std::vector<Shape> Shapes() {
  const Sizes sides = {0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 127};
  std::vector<Shape> shapes;
  for (const size_t rows : sides) {
    for (const size_t cols : sides) {
      shapes.push_back({rows, cols, 0, 0});
      shapes.push_back({rows, cols, 3, 1});
    }
  }
  shapes.push_back({32, 1027, 5, 0});
  shapes.push_back({1027, 32, 0, 5});
  shapes.push_back({32, 67, 4096, 0});
  shapes.push_back({67, 32, 0, 4096});
  // Runs of 256 bytes and of 512, with a rest, between rows that are near or far.
  for (const size_t width : Sizes{32, 64}) {
    for (const size_t length : Sizes{65, 130, 257, 515, 600}) {
      shapes.push_back({width, length, 4096, 0});
      shapes.push_back({width, length, 4096, 300});
      shapes.push_back({length, width, 0, 4096});
      shapes.push_back({length, width, 300, 4096});
    }
  }
  return shapes;
}

void CheckTranspose(Isa isa, size_t unit, const Shape& shape, SplitMix64& random) {
  CAPTURE(IsaName(isa), unit, shape.rows, shape.cols, shape.in_gap, shape.out_gap);
  const size_t in_stride = shape.cols * unit + shape.in_gap;
  const size_t out_stride = shape.rows * unit + shape.out_gap;
  const EdgeBuffer in(StridedBytes(shape.rows, shape.cols * unit, in_stride), random);
  const size_t out_bytes =
      shape.rows == 0 ? 0 : StridedBytes(shape.cols, shape.rows * unit, out_stride);
  const EdgeBuffer out(out_bytes);
  const TransposeUnitsFn transpose = TransposeUnitsFor(isa, unit);
  transpose(in.bytes(), in_stride, shape.rows, shape.cols, out.bytes(), out_stride);
  std::vector<uint8_t> expected = Poisoned(out_bytes);
  for (size_t r = 0; r < shape.rows; ++r) {
    for (size_t i = 0; i < shape.cols * unit; ++i) {
      expected[i / unit * out_stride + r * unit + i % unit] = in.data()[r * in_stride + i];
    }
  }
  REQUIRE(out.Holds(expected));

  const EdgeBuffer back(in.span().size());
  transpose(out.bytes(), out_stride, shape.cols, shape.rows, back.bytes(), in_stride);
  std::vector<uint8_t> natural = Poisoned(in.span().size());
  for (size_t r = 0; r < shape.rows; ++r) {
    std::copy_n(in.data() + r * in_stride, shape.cols * unit, natural.data() + r * in_stride);
  }
  REQUIRE(back.Holds(natural));
}

TEST_CASE("Units of every size are transposed as the closed form says, and back") {
  SplitMix64 random(31);
  for (const Isa isa : SupportedIsas()) {
    for (const size_t unit : Sizes{1, 2, 4, 8}) {
      for (const Shape& shape : Shapes()) CheckTranspose(isa, unit, shape, random);
    }
  }
}

}  // namespace
}  // namespace prepack
