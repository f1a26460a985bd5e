#include "prepack/verify/truth.h"

#include <vector>

#include "catch.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/layouts/table.h"

namespace prepack::testing {
namespace {

double OperandOf(WeightRounding rounding, DType activation, float step, double scale) {
  PackRequest request;
  request.activation_dtype = activation;
  const DecodedRows decoded{.steps = {step}, .small = {}, .scales = {scale}, .group_of = {0}};
  std::vector<double> operand(1);
  FillKernelWeights(rounding, Layout{}, request, decoded, operand);
  return operand[0];
}

TEST_CASE("weights are rounded as the kernel does it") {
  using enum WeightRounding;
  const double third = 1.0F / 3.0F;
  CHECK(OperandOf(kNone, DType::kBF16, 3, third) == 3 * third);
  CHECK(OperandOf(kToF32, DType::kBF16, 3, third) == 1.0);
  CHECK(OperandOf(kToBF16, DType::kF16, 1, third) == 0.333984375);
  CHECK(OperandOf(kToActivation, DType::kBF16, 1, third) == 0.333984375);
  CHECK(OperandOf(kToActivation, DType::kF16, 1, third) == 0.333251953125);
  CHECK(OperandOf(kToActivation, DType::kF32, 1, third) == 0.333984375);
  // Below the smallest normal number.
  CHECK(OperandOf(kToBF16, DType::kBF16, 1, 0x1p-127) == 0);
  CHECK(OperandOf(kDequantized, DType::kBF16, 1, 0x1p-127) == 0x1p-127);
}

TEST_CASE("the FP8 kernel reads zeros and subnormals as normal numbers") {
  using enum WeightRounding;
  CHECK(OperandOf(kFp8, DType::kBF16, 0.0F, 2) == 0x1p-6);
  CHECK(OperandOf(kFp8, DType::kBF16, -0.0F, 2) == -0x1p-6);
  CHECK(OperandOf(kFp8, DType::kBF16, 0x1p-9F, 1) == 0x1.2p-7);
  CHECK(OperandOf(kFp8, DType::kBF16, -7 * 0x1p-9F, 1) == -0x1.ep-7);
  CHECK(OperandOf(kFp8, DType::kBF16, 0x1p-6F, 1) == 0x1p-6);
  CHECK(OperandOf(kFp8, DType::kBF16, 448.0F, 1) == 448);
  CHECK(OperandOf(kFp8ToBF16, DType::kBF16, 1.0F, static_cast<double>(1.0F / 3.0F)) == 0.333984375);
}

TEST_CASE("scales are rounded as the layout stores them") {
  const Layout* layout = FindLayout("zentorch/da8w4");
  REQUIRE(layout != nullptr);
  const double scale = 1.0F / 3.0F;
  const DecodedRows decoded{.steps = {3}, .small = {}, .scales = {scale}, .group_of = {0}};
  std::vector<double> operand(1);
  FillKernelWeights(WeightRounding::kNone, *layout, {}, decoded, operand);
  CHECK(operand[0] == 3 * 0.333984375);
  FillExactWeights(decoded, operand);
  CHECK(operand[0] == 3 * scale);
}

TEST_CASE("every weight has the scale of its row and group") {
  const DecodedRows decoded{.steps = {1, 2, 3, 4, 5, 6},
                            .small = {},
                            .scales = {1, 10, 100, 1000},
                            .group_of = {1, 0, 1}};
  CHECK(decoded.rows() == 2);
  CHECK(decoded.groups() == 2);
  const std::vector<double> expected = {10, 2, 30, 4000, 500, 6000};
  std::vector<double> weights(6);
  FillExactWeights(decoded, weights);
  CHECK(weights == expected);
  std::vector<double> operands(6);
  FillKernelWeights(WeightRounding::kNone, Layout{}, {}, decoded, operands);
  CHECK(operands == expected);
}

}  // namespace
}  // namespace prepack::testing
