#pragma once

// The unpacked weights of a packed module. The second engine multiplies them when the first one is
// the model of the kernel, which walks the packed bytes itself.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "prepack/base/dtype.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/second/decoder.h"

namespace prepack {

// Memory of one thread.
struct UnpackBuffers {
  PageBuffer packed;
  PageBuffer codes;
  std::vector<float> scales;
  std::vector<uint8_t> zero_points;
  DecodedRows decoded;
  std::vector<float> weights;  // [channels, inputs], in packed order
};

// Fills buffers.weights with output channels [n0, n0 + channels) of the slab's input channels,
// rounded as the kernel does. n0 is a multiple of the layout's cut().rows and strip_rows, and the
// slab begins at one of cut().cols, and of the groups.
Status UnpackWeights(const PackedModule& packed, WeightRounding rounding, const InputSlab& slab,
                     uint64_t n0, uint64_t channels, UnpackBuffers& buffers);

// The parts of a packed module as its consumer hands them to the kernel.

// The dtype of x and y. oneDNN's W4A16 computes in bf16 whatever it is given.
DType InputDType(const PackedModule& packed);

// All parts but the weight, copied out of the folder.
class LoadedOperands {
 public:
  // The module must outlive the object.
  static Result<LoadedOperands> Load(const PackedModule& packed);

  // `weight` must outlive the result, and so must this object.
  PackedOperands With(std::span<const std::byte> weight) const;
  // That of each output channel, or none.
  std::vector<float> Bias() const;
  // What the consumer does to y [M, channels], of output channels from n0 on, after the op.
  void Finish(uint64_t n0, uint64_t channels, std::span<float> y) const;

 private:
  explicit LoadedOperands(const PackedModule& packed);
  Status Read();

  const PackedModule* packed_;
  bool consumer_scales_;
  PageBuffer scale_;
  PageBuffer zero_point_;
  PageBuffer bias_;
  PageBuffer weight_sum_;
  // Where the consumer multiplies with the scales: those that the op gets, and the real ones.
  std::vector<float> ones_;
  std::vector<float> consumer_scale_;
  std::vector<float> consumer_bias_;
  float input_scale_ = 0;
  int32_t input_zero_point_ = 0;
};

}  // namespace prepack
