#include "prepack/gemm/activation_quantizers.h"

#include <cmath>
#include <limits>
#include <vector>

#include "catch.h"
#include "gemm/kernel_model_file.h"
#include "prepack/base/float_convert.h"

namespace prepack::testing {
namespace {

using Values = std::vector<int16_t>;

Values Widened(const std::vector<int8_t>& values) {
  return {values.begin(), values.end()};
}

// What vLLM's quantizer of oneDNN's handler would be for this file.
QuantizedRows QuantizeLike(const KernelModelFile& golden) {
  switch (golden.packed.activations) {
    case ActivationQuantizer::kDynamicSymmetric:
      return QuantizeDynamic(golden.x, golden.packed.k);
    case ActivationQuantizer::kDynamicAsymmetric:
      return QuantizeDynamicAsymmetric(golden.x, golden.packed.k);
    default:
      return QuantizeStatic(golden.x, golden.packed.k, golden.packed.input_scale,
                            golden.packed.input_zero_point);
  }
}

TEST_CASE("vLLM's int8 quantizers give the values that they gave") {
  size_t files = 0;
  for (const auto& path : GoldenFilesOf("onednn/w8a8")) {
    const KernelModelFile golden(path);
    INFO("file " << golden.name);
    const QuantizedRows rows = QuantizeLike(golden);
    CHECK(rows.values == Widened(golden.file.Values<int8_t>("x.quantized")));
    // Static: one value in the file, one per row here.
    const auto scales = golden.file.Values<float>("x.scale");
    REQUIRE(rows.scales.size() == golden.input.m);
    for (size_t m = 0; m < rows.scales.size(); ++m) {
      CHECK(rows.scales[m] == scales[m % scales.size()]);
    }
    REQUIRE(rows.zero_points.size() == golden.input.m);
    std::vector<int32_t> zero_points = {0};
    if (golden.file.Has("x.zero_point")) {
      zero_points = golden.file.Values<int32_t>("x.zero_point");
    }
    for (size_t m = 0; m < rows.zero_points.size(); ++m) {
      CHECK(rows.zero_points[m] == zero_points[m % zero_points.size()]);
    }
    ++files;
  }
  CHECK(files == 10);
}

TEST_CASE("vLLM's FP8 quantizer gives the codes that it gave") {
  size_t files = 0;
  for (const auto& path : GoldenFilesOf("vllm-cpu/fp8-w8a8-plain")) {
    const KernelModelFile golden(path);
    INFO("file " << golden.name);
    const Fp8Rows rows = QuantizeFp8(golden.x, golden.packed.k);
    CHECK(rows.codes == golden.file.Values<uint8_t>("x.quantized"));
    CHECK(rows.scales == golden.file.Values<float>("x.scale"));
    ++files;
  }
  CHECK(files == 6);
}

TEST_CASE("sgl rows lie around 128, scaled by the largest magnitude") {
  const std::vector<float> x = {127, -127, 1, 0,  //
                                0,   0,    0, 0};
  const QuantizedRows rows = QuantizeSgl(x, 4, Halfway::kToEven);
  CHECK(rows.values == Values{255, 1, 129, 128, 128, 128, 128, 128});
  CHECK(rows.scales == std::vector<float>{1, 1e-7F / 127.0F});
  CHECK(rows.zero_points == std::vector<int64_t>{128, 128});
}

TEST_CASE("sgl rows of F16 round halves away from zero, those of BF16 to even") {
  const std::vector<float> x = {127, 0.5F, 1.5F, 2.5F, -0.5F, -2.5F};
  CHECK(QuantizeSgl(x, 6, Halfway::kToEven).values == Values{255, 128, 130, 130, 128, 126});
  CHECK(QuantizeSgl(x, 6, Halfway::kAwayFromZero).values == Values{255, 129, 130, 131, 127, 125});
}

TEST_CASE("an sgl row of tiny numbers is scaled as if it held 1e-7") {
  const std::vector<float> x = {1e-9F, -5e-8F};
  const QuantizedRows rows = QuantizeSgl(x, 2, Halfway::kToEven);
  CHECK(rows.values == Values{129, 64});  // 1.27 and -63.5
  CHECK(rows.scales[0] == 1e-7F / 127.0F);
}

TEST_CASE("one outlier leaves the other numbers of its row few steps") {
  const std::vector<float> x = {1270, 4.9F, 5.1F, -14.9F};
  CHECK(QuantizeDynamic(x, 4).values == Values{127, 0, 1, -1});
  CHECK(QuantizeSgl(x, 4, Halfway::kToEven).values == Values{255, 128, 129, 127});
  CHECK(QuantizeZentorch(x, 4).values == Values{127, 0, 1, -1});
}

TEST_CASE("a row of zeros has scale 0 where there is no lower bound") {
  const std::vector<float> x = {0, 0, 0};
  const QuantizedRows symmetric = QuantizeDynamic(x, 3);
  CHECK(symmetric.values == Values{0, 0, 0});
  CHECK(symmetric.scales == std::vector<float>{0});
  const QuantizedRows asymmetric = QuantizeDynamicAsymmetric(x, 3);
  CHECK(asymmetric.values == Values{0, 0, 0});
  CHECK(asymmetric.scales == std::vector<float>{0});
  CHECK(asymmetric.zero_points == std::vector<int64_t>{std::numeric_limits<int32_t>::min()});
  const QuantizedRows zentorch = QuantizeZentorch(x, 3);
  CHECK(zentorch.values == Values{0, 0, 0});
  CHECK(zentorch.scales == std::vector<float>{1e-10F});
}

TEST_CASE("the range of a row sets an asymmetric scale and zero point") {
  const std::vector<float> x = {0,    255, 100.4F, 1,  //
                                -255, 0,   -0.5F,  -254.5F};
  const QuantizedRows rows = QuantizeDynamicAsymmetric(x, 4);
  CHECK(rows.scales == std::vector<float>{1, 1});
  CHECK(rows.zero_points == std::vector<int64_t>{-128, 127});
  CHECK(rows.values == Values{-128, 127, -28, -127,  //
                              -128, 127, 126, -128});
}

TEST_CASE("a range far from zero has a zero point out of the range of the values") {
  const std::vector<float> x = {1000, 1255};
  const QuantizedRows rows = QuantizeDynamicAsymmetric(x, 2);
  CHECK(rows.zero_points == std::vector<int64_t>{-1128});
  CHECK(rows.values == Values{-128, 127});
}

TEST_CASE("static values are clamped to 8 bits") {
  const std::vector<float> x = {-1000, 1000, 0.25F, 0.75F};
  const QuantizedRows rows = QuantizeStatic(x, 2, 0.5F, -3);
  CHECK(rows.values == Values{-128, 127, -2, -2});  // -2.5 and -1.5 to even
  CHECK(rows.scales == std::vector<float>{0.5F, 0.5F});
  CHECK(rows.zero_points == std::vector<int64_t>{-3, -3});
}

TEST_CASE("static quantizers add the zero point before they round") {
  // x * (1 / s) + 3 is -6.5000005; with two roundings it is -6.5, which goes to the even -6.
  CHECK(QuantizeStatic(std::vector<float>{-0x1.6CCCCEp+1F}, 1, 0.3F, 3).values == Values{-7});
}

TEST_CASE("a zentorch row of tiny numbers has scale 1e-10") {
  const std::vector<float> x = {2.56e-9F, -1e-10F, 4e-11F};
  const QuantizedRows rows = QuantizeZentorch(x, 3);
  CHECK(rows.scales == std::vector<float>{1e-10F});
  CHECK(rows.values == Values{26, -1, 0});
}

TEST_CASE("zentorch divides where vLLM multiplies by the inverse") {
  // Found by search: a value whose two quotients round to different sides of a half.
  size_t different = 0;
  for (uint32_t i = 1; i < 4096; ++i) {
    const std::vector<float> x = {BF16ToF32(static_cast<uint16_t>(0x3F80 + i / 32)),
                                  BF16ToF32(static_cast<uint16_t>(0x3C00 + i))};
    const float scale = std::max(x[0], x[1]) / 127.0F;
    const Values values = QuantizeZentorch(x, 2).values;
    CHECK(values[1] == static_cast<int16_t>(std::nearbyint(x[1] / scale)));
    different += values == QuantizeDynamic(x, 2).values ? 0U : 1U;
  }
  CHECK(different > 0);
}

TEST_CASE("e4m3 codes of numbers worked out by hand") {
  // The largest magnitude makes the scale 1.
  const std::vector<float> x = {448,     -448,     1,        1.0625F,   1.1875F, 0x1p-6F,
                                0x1p-9F, 0x1p-10F, 0x3p-10F, 0x1.Ep-7F, 0,       432};
  CHECK(QuantizeFp8(x, 12).scales == std::vector<float>{1});
  CHECK(QuantizeFp8(x, 12).codes == std::vector<uint8_t>{0x7E, 0xFE, 0x38, 0x38, 0x3A, 0x08,  //
                                                         0x01, 0x00, 0x02, 0x08, 0x00, 0x7E});
}

TEST_CASE("every e4m3 number is its own code") {
  std::vector<float> x;
  std::vector<uint8_t> codes;
  for (unsigned code = 0; code < 256; ++code) {
    if ((code & 0x7FU) == 0x7FU) continue;  // no number
    codes.push_back(static_cast<uint8_t>(code));
    x.push_back(F8E4M3ToF32(codes.back()));
  }
  CHECK(QuantizeFp8(x, x.size()).codes == codes);
}

TEST_CASE("an FP8 row of tiny numbers is scaled by 2^-23") {
  const std::vector<float> x = {0x1p-30F, 0};
  CHECK(QuantizeFp8(x, 2).scales == std::vector<float>{0x1p-23F});
  CHECK(QuantizeFp8(x, 2).codes == std::vector<uint8_t>{0x04, 0x00});  // 2^-7
}

}  // namespace
}  // namespace prepack::testing
