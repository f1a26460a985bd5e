// Units change places as the closed form says, whatever the shape.

#include "prepack/kernels/unit_transpose.h"

#include "catch.h"
#include "kernels/edge_buffer.h"
#include "prepack/base/isa.h"
#include "prepack/kernels/kernels.h"

namespace prepack::testing {
namespace {

struct UnitShape {
  size_t rows;
  size_t cols;
  size_t in_gap;  // bytes between rows
  size_t out_gap;
};

// Everything around the blocks of any unit (4 to 32 rows by 2 to 16 columns) and around the
// units of a cache line, dense or not, longer on either side.
std::vector<UnitShape> Shapes() {
  const Sizes sides = {0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 127};
  std::vector<UnitShape> shapes;
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

void CheckTranspose(Isa isa, size_t unit, const UnitShape& shape, SplitMix64& random) {
  CAPTURE(IsaName(isa), unit, shape.rows, shape.cols, shape.in_gap, shape.out_gap);
  const size_t in_stride = shape.cols * unit + shape.in_gap;
  const size_t out_stride = shape.rows * unit + shape.out_gap;
  const EdgeBuffer in(StridedBytes(shape.rows, shape.cols * unit, in_stride), random);
  const size_t out_bytes =
      shape.rows == 0 ? 0 : StridedBytes(shape.cols, shape.rows * unit, out_stride);
  const EdgeBuffer out(out_bytes);
  TransposeUnitsFn* const transpose = TransposeUnits(KernelsFor(isa), unit);
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

// Numbers that are there before; one more than there are rows, which must stay.
std::vector<int32_t> UnitSumsBefore(size_t rows) {
  return std::vector<int32_t>(rows + 1, -1000003);
}

void CheckSums(Isa isa, const UnitShape& shape, SplitMix64& random) {
  CAPTURE(IsaName(isa), shape.rows, shape.cols, shape.in_gap, shape.out_gap);
  const size_t in_stride = 4 * shape.cols + shape.in_gap;
  const size_t out_stride = 4 * shape.rows + shape.out_gap;
  const EdgeBuffer in(StridedBytes(shape.rows, 4 * shape.cols, in_stride), random);
  const size_t out_bytes =
      shape.rows == 0 ? 0 : StridedBytes(shape.cols, 4 * shape.rows, out_stride);
  const EdgeBuffer plain(out_bytes);
  KernelsFor(isa).transpose_words(in.bytes(), in_stride, shape.rows, shape.cols, plain.bytes(),
                                  out_stride);
  const EdgeBuffer out(out_bytes);
  std::vector<int32_t> sums = UnitSumsBefore(shape.rows);
  KernelsFor(isa).transpose_summed_words(in.bytes(), in_stride, shape.rows, shape.cols, out.bytes(),
                                         out_stride, sums.data());
  REQUIRE(out.Holds(std::vector<uint8_t>(plain.data(), plain.data() + out_bytes)));
  std::vector<int32_t> expected = UnitSumsBefore(shape.rows);
  for (size_t r = 0; r < shape.rows; ++r) {
    for (size_t i = 0; i < 4 * shape.cols; ++i) {
      expected[r] += static_cast<int8_t>(in.data()[r * in_stride + i]);
    }
  }
  REQUIRE(sums == expected);
}

TEST_CASE("units of every size are transposed as the closed form says, and back") {
  SplitMix64 random(31);
  for (const Isa isa : SupportedIsas()) {
    for (const size_t unit : Sizes{1, 2, 4, 8}) {
      for (const UnitShape& shape : Shapes()) CheckTranspose(isa, unit, shape, random);
    }
  }
}

TEST_CASE("the codes of each row are summed while units of four of them are transposed") {
  SplitMix64 random(34);
  for (const Isa isa : SupportedIsas()) {
    for (const UnitShape& shape : Shapes()) CheckSums(isa, shape, random);
  }
}

TEST_CASE("sums of many rows of the largest codes do not overflow on the way") {
  constexpr size_t kRows = 32;
  constexpr size_t kCols = 1024;
  std::vector<std::byte> out(kRows * kCols * 4);
  for (const int value : {-128, 127}) {
    const std::vector<std::byte> in(kRows * kCols * 4, static_cast<std::byte>(value));
    for (const Isa isa : SupportedIsas()) {
      CAPTURE(IsaName(isa), value);
      std::vector<int32_t> sums(kRows);
      KernelsFor(isa).transpose_summed_words(in.data(), 4 * kCols, kRows, kCols, out.data(),
                                             4 * kRows, sums.data());
      CHECK(sums == std::vector<int32_t>(kRows, value * 4 * static_cast<int>(kCols)));
    }
  }
}

}  // namespace
}  // namespace prepack::testing
