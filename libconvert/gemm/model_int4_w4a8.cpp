// vllm-cpu/int4-w4a8: _C::int4_scaled_mm_cpu (csrc/cpu/sgl-kernels/gemm_int4.cpp). Activations are
// u8 around 128; what the 128 adds is taken off by the compensation that is stored behind the codes
// of each block.

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "gemm/integer_model.h"
#include "gemm/kernel_models.h"
#include "gemm/model_operands.h"

namespace prepack {
namespace {

constexpr uint64_t kChannels = 32;  // of a block
constexpr uint64_t kMaxBlockK = 128;

uint64_t BlockK(uint64_t group_size) {
  return std::min(group_size, kMaxBlockK);
}

class Int4W4A8Model final : public IntegerModel {
 public:
  using IntegerModel::IntegerModel;

 private:
  uint64_t BlockBytes() const { return segment() * kChannels / 2 + kChannels * sizeof(int32_t); }
  uint64_t BlockStart(uint64_t n, uint64_t block) const {
    return (n / kChannels * (k() / segment()) + block) * BlockBytes();
  }
  // Of weight_scale and weight_zero_point, both [N / 32, G, 32].
  uint64_t Parameter(uint64_t n, uint64_t in_k) const {
    const uint64_t groups = k() / packed().group_size;
    return (n / kChannels * groups + in_k / packed().group_size) * kChannels + n % kChannels;
  }

  void DecodeRows(uint64_t n0, uint64_t rows, int16_t* w) const override {
    for (uint64_t n = n0; n < n0 + rows; ++n) {
      const int shift = n / 8 % 2 == 0 ? 0 : 4;
      for (uint64_t block = 0; block < k() / segment(); ++block) {
        const int zero = LoadS8(packed().zero_point, Parameter(n, block * segment()));
        const std::byte* codes =
            packed().weight.data() + BlockStart(n, block) + n % 32 / 16 * 32 + n % 8 * 4;
        for (uint64_t in_k = 0; in_k < segment(); ++in_k) {
          const int code = std::to_integer<int>(codes[in_k / 4 * 64 + in_k % 4]) >> shift & 15;
          *w++ = static_cast<int16_t>(code - zero);
        }
      }
    }
  }

  float Finish(uint64_t m, uint64_t n, std::span<const int32_t> sums) const override {
    float result = Bias(n);
    for (uint64_t block = 0; block < sums.size(); ++block) {
      const uint64_t behind_codes = BlockStart(n, block) + segment() * kChannels / 2;
      const auto compensation = Load<int32_t>(packed().weight.subspan(behind_codes), n % kChannels);
      const int32_t sum = WrappingAdd(sums[block], WrappingMul(-128, compensation));
      result = std::fma(static_cast<float>(sum) * x().scales[m],
                        scales()[Parameter(n, block * segment())], result);
    }
    return result;
  }

  // This kernel rounds by bit arithmetic: subnormals stay.
  float Round(DType dtype, float value) const override { return RoundTo(dtype, value); }

  double WeightScale(uint64_t n, uint64_t in_k) const override {
    return scales()[Parameter(n, in_k)];
  }
};

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeInt4W4A8Model(const PackedOperands& packed,
                                                       const ModelInput& input) {
  const uint64_t groups = packed.k / packed.group_size;
  const uint64_t block_k = BlockK(packed.group_size);
  OperandCheck check;
  check.Groups(packed);
  check.Rule(packed.n % kChannels == 0, "N must be a multiple of 32", packed.n);
  check.Rule(packed.k % 32 == 0, "K must be a multiple of 32", packed.k);
  check.Rule(packed.group_size % 4 == 0, "the group size must be a multiple of 4",
             packed.group_size);
  check.Rule(packed.group_size % block_k == 0, "a group size above 128 must be a multiple of 128",
             packed.group_size);
  check.Type("x", input.dtype, {DType::kBF16, DType::kF16});
  check.Type("weight_scale", packed.scale_dtype, {DType::kF32});
  check.Bytes("weight", packed.weight,
              {packed.n / kChannels, packed.k / block_k,
               block_k * kChannels / 2 + kChannels * sizeof(int32_t)});
  check.Bytes("weight_scale", packed.scale, {groups, packed.n, sizeof(float)});
  check.Bytes("weight_zero_point", packed.zero_point, {groups, packed.n});
  check.Bias(packed, {DType::kF32});
  if (!check.status().ok()) return check.status();
  const Halfway halfway = input.dtype == DType::kF16 ? Halfway::kAwayFromZero : Halfway::kToEven;
  return std::unique_ptr<KernelModel>(std::make_unique<Int4W4A8Model>(
      packed, input, QuantizeSgl(input.x, packed.k, halfway), block_k));
}

}  // namespace prepack
