#pragma once

// The part that is common to all models. They go through blocks of kModelBlock output channels, and
// through each by runs of input channels, so that decoded weights stay in the cache while all
// activations are multiplied with them. What a model is made of is how it decodes weights, and what
// it makes of sums.

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "prepack/gemm/activation_quantizers.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/kernels/kernels.h"

namespace prepack {

// Output channels of a block, at most: two in a byte, they fill a cache line.
inline constexpr uint64_t kModelBlock = 128;
// Input channels of a run, at most.
inline constexpr uint64_t kRunInputs = 128;
// That are decoded where just one of them is wanted.
inline constexpr uint64_t kFewInputs = 8;

// Output channels [n0, n0 + rows) and input channels [k0, k0 + inputs).
struct ModelPiece {
  uint64_t n0 = 0;
  uint64_t rows = 0;
  uint64_t k0 = 0;
  uint64_t inputs = 0;
};

// One number for each output channel of a block.
using BlockOfFloats = std::array<float, kModelBlock>;

// X is float, with float for Sum; or int16_t, with int32_t, whose sums wrap around.
template <typename X, typename Sum>
class StripModel : public KernelModel {
 public:
  // x in the shape of the input as the kernel multiplies it; base[m]: what zero became in row m.
  // `segment`: input channels that the kernel sums before it scales; the last may have fewer.
  StripModel(const PackedOperands& packed, const ModelInput& input, std::vector<X> x,
             std::span<const X> base, uint64_t segment);

  Status Run(uint64_t n0, std::span<float> y) const final;
  Status RunAndDigest(uint64_t n0, const DigestFactors& factors, std::span<float> y,
                      std::span<uint32_t> digests) const override;
  bool digests_integers() const final { return std::is_integral_v<X>; }
  void Weights(uint64_t n0, std::span<double> w) const override;

 protected:
  // Decodes into w: floats [inputs, kStripChannels], or pairs [inputs / 2, kStripChannels, 2]. n0
  // is a multiple of kStripChannels, rows at most that; k0 begins a segment, or lies a multiple of
  // kRunInputs behind that. Columns from `rows` on may be anything, and so may the second half of
  // the last pair when `inputs` is odd.
  virtual void Decode(const ModelPiece& piece, X* w) const = 0;
  // Adds the digests of a whole strip to those of its channels straight from the codes; false, and
  // adds nothing, where the model cannot, whatever the output channels. One that can decodes from
  // every multiple of kFewInputs on, whole numbers or weights of bf16. The factors are the narrow
  // ones; where rows have bases, ones are the factors of a second call.
  virtual bool DigestCodes(const ModelPiece& /*strip*/, const int16_t* /*factors*/,
                           uint32_t* /*digests*/) const {
    return false;
  }
  // The same of several whole strips, for models that had better read them together.
  virtual bool DigestStrips(const ModelPiece& strips, const int16_t* factors,
                            uint32_t* digests) const;
  // What the sums [M, kModelBlock] of a segment begin with, where that is not zero.
  virtual void Begin(const ModelPiece& /*segment*/, Sum* /*sums*/) const {}
  // Adds the sums [M, kModelBlock] of a segment to `results`, which begin as zeros. Segments come
  // in ascending order.
  virtual void Fold(const ModelPiece& segment, const Sum* sums, float* results) const = 0;
  // Results to the type of the output; here by the instruction, see RoundByInstruction.
  virtual void RoundAll(DType dtype, std::span<const float> values, float* y) const;

  uint64_t m() const { return m_; }
  uint64_t n() const { return packed_.n; }
  uint64_t k() const { return packed_.k; }
  uint64_t segment() const { return segment_; }
  uint64_t columns() const { return columns_; }  // of x
  const PackedOperands& packed() const { return packed_; }
  DType dtype() const { return dtype_; }
  const KernelTable& kernels() const { return kernels_; }
  std::span<const X> values() const { return std::span(x_).first(m_ * columns_); }
  const std::vector<float>& scales() const { return scales_; }  // in stored order
  bool has_bias() const { return !bias_.empty(); }
  float Bias(uint64_t n) const;

 private:
  struct Scratch;
  // What a row that is nearly all zero adds in one column of x, beyond what zero became.
  struct SparseEntry {
    uint64_t k;
    uint64_t m;
    X x;
  };

  uint64_t InputsFrom(uint64_t k0) const;
  // Is x given for any of input channels [begin, end)?
  bool Touches(uint64_t begin, uint64_t end) const;
  Status RunAll(uint64_t n0, std::span<float> y, Scratch& scratch) const;
  void AddRun(const ModelPiece& run, Scratch& scratch) const;
  void Digest(const ModelPiece& strip, Scratch& scratch) const;
  uint64_t DigestCodesOf(const ModelPiece& run, Scratch& scratch) const;
  void AddBases(const ModelPiece& segment, Scratch& scratch) const;
  void MultiplyDense(const ModelPiece& strip, uint64_t column, Scratch& scratch) const;
  void MultiplyOutside(const ModelPiece& strip, uint64_t column, Scratch& scratch) const;
  void MultiplySparse(const ModelPiece& strip, uint64_t column, Scratch& scratch) const;
  std::span<const SparseEntry> EntriesOf(const ModelPiece& strip) const;
  void DecodeAndMultiplyFew(const ModelPiece& strip, uint64_t column, Scratch& scratch) const;

  PackedOperands packed_;
  uint64_t m_;
  DType dtype_;
  const KernelTable& kernels_;
  InputSlab slab_;      // what x is given for
  uint64_t columns_;    // of x
  std::vector<X> x_;    // and one more, behind an odd number of columns
  bool zeros_outside_;  // what zero became is zero, in every row
  ModelRows<X> rows_;
  std::vector<SparseEntry> sparse_;  // of all rows that are nearly all zero, by k
  bool has_bases_ = false;           // in some of these rows zero became another number
  uint64_t segment_;
  std::vector<float> scales_;
  std::vector<float> bias_;
};

extern template class StripModel<float, float>;
extern template class StripModel<int16_t, int32_t>;

// The part that is common to kernels that multiply floats and sum in f32.

class FloatModel : public StripModel<float, float> {
 public:
  // `x` as the kernel multiplies it; see StripModel.
  FloatModel(const PackedOperands& packed, const ModelInput& input, std::vector<float> x,
             uint64_t segment);
  // One sum over all input channels of x as it is given.
  FloatModel(const PackedOperands& packed, const ModelInput& input);

  void CopyActivations(uint64_t m, std::span<double> row) const override;
  double Activation(uint64_t m, uint64_t column) const override {
    return static_cast<double>(values()[m * columns() + column]);
  }

 protected:
  // Where there is one segment: its sums and the bias.
  void Fold(const ModelPiece& segment, const float* sums, float* results) const override;
  double WeightFactor(uint64_t /*n*/, uint64_t /*k*/) const override { return 1; }

  // How many input channels from in_k on have the same group of `group_size`.
  uint64_t InputsOfGroup(uint64_t in_k) const {
    return packed().group_size - in_k % packed().group_size;
  }

  // Calls work(j, inputs) for input channels [j, j + inputs) of the piece, which have one group.
  template <typename Work>
  void ForGroups(const ModelPiece& piece, const Work& work) const {
    uint64_t inputs = 0;
    for (uint64_t j = 0; j < piece.inputs; j += inputs) {
      inputs = std::min(piece.inputs - j, InputsOfGroup(piece.k0 + j));
      work(j, inputs);
    }
  }
};

// The part that is common to kernels that multiply 8-bit activations: they sum exactly in int32 and
// scale the sums afterwards.

class IntegerModel : public StripModel<int16_t, int32_t> {
 public:
  IntegerModel(const PackedOperands& packed, const ModelInput& input, QuantizedRows x,
               uint64_t segment);

  void CopyActivations(uint64_t m, std::span<double> row) const final;
  double Activation(uint64_t m, uint64_t column) const final {
    return static_cast<double>(values()[m * columns() + column] - token_zeros_[m]) *
           static_cast<double>(token_scales_[m]);
  }

 protected:
  const std::vector<float>& token_scales() const { return token_scales_; }  // [M]
  const std::vector<int64_t>& token_zeros() const { return token_zeros_; }  // [M]
  // Of scales stored [G, N]: the one of input channel k and output channel n.
  double GroupScale(uint64_t n, uint64_t k) const;
  // Fold for segments that are groups with such scales: adds (sum · token scale) · group scale, and
  // the bias in the end.
  void FoldGroup(const ModelPiece& group, const int32_t* sums, float* results) const;

 private:
  std::vector<float> token_scales_;
  std::vector<int64_t> token_zeros_;
};

// Kernels with one scale per output channel.
class ChannelModel : public IntegerModel {
 public:
  ChannelModel(const PackedOperands& packed, const ModelInput& input, QuantizedRows x);

 protected:
  double WeightFactor(uint64_t n, uint64_t /*k*/) const override;

 private:
  // y[m, n], before it is rounded, from the sum over all input channels.
  virtual float Finish(uint64_t m, uint64_t n, int32_t sum) const = 0;

  void Fold(const ModelPiece& segment, const int32_t* sums, float* results) const final;
};

// A byte that is read as two's complement.
constexpr int16_t Widened(int8_t value) {
  return static_cast<int16_t>(static_cast<int>(value));
}

// Signed bytes that lie in fours of input channels: value (i, j) of a piece at
// j / 4 * stride + 4 * i + j % 4. The last four must be whole.
struct Quads {
  const std::byte* bytes;
  uint64_t stride;
};
void DecodeQuads(const Quads& packed, const ModelPiece& piece, int16_t* w);
// See StripModel::DigestCodes.
bool DigestQuads(const Quads& packed, const ModelPiece& strip, const int16_t* factors,
                 uint32_t* digests);

// A model (of class Base) whose weights lie so.
template <typename Base>
class QuadsModel : public Base {
 public:
  using Base::Base;

 private:
  // From the first value of the piece on.
  virtual Quads QuadsOf(const ModelPiece& piece) const = 0;

  void Decode(const ModelPiece& piece, int16_t* w) const final {
    DecodeQuads(QuadsOf(piece), piece, w);
  }
  bool DigestCodes(const ModelPiece& strip, const int16_t* factors, uint32_t* digests) const final {
    return DigestQuads(QuadsOf(strip), strip, factors, digests);
  }
};

// Signed bytes of one output channel after the other, `stride` apart: from the first of the piece.
void DecodeRows(const int8_t* rows, uint64_t stride, const ModelPiece& piece, int16_t* w);
void DigestRows(const int8_t* rows, uint64_t stride, const ModelPiece& strip,
                const int16_t* factors, uint32_t* digests);

// A model (of class Base) whose weights have to be gathered first to lie so.
template <typename Base>
class RowsModel : public Base {
 public:
  using Base::Base;

 protected:
  using Rows = std::array<int8_t, kStripChannels * kRunInputs>;  // kRunInputs apart

 private:
  virtual void GatherRows(const ModelPiece& piece, Rows& rows) const = 0;

  void Decode(const ModelPiece& piece, int16_t* w) const final {
    Rows rows{};
    GatherRows(piece, rows);
    DecodeRows(rows.data(), kRunInputs, piece, w);
  }
  bool DigestCodes(const ModelPiece& strip, const int16_t* factors, uint32_t* digests) const final {
    Rows rows;
    GatherRows(strip, rows);
    DigestRows(rows.data(), kRunInputs, strip, factors, digests);
    return true;
  }
};

// The same of signed bytes [N, K].
void DecodeRowsOfBytes(const PackedOperands& packed, const ModelPiece& piece, int16_t* w);
void DigestRowsOfBytes(const PackedOperands& packed, const ModelPiece& strip,
                       const int16_t* factors, uint32_t* digests);

// a + b in the int32 arithmetic of the kernels, which wraps.
constexpr int32_t WrappingAdd(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}
constexpr int32_t WrappingMul(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
}

}  // namespace prepack
