#pragma once

// Quark's modules of integers (mirrors amd-quark 0.13, torch/utils/pack.py and
// torch/export/nn/modules/realquantizer.py): W = (q − z) · scale.
//
//     bits, qscheme           weight          weight_scale  weight_zero_point
//     4, per_group            I32 [K, N/8]    [K/G, N]      I32 [K/G, N/8]
//     4, per_channel          I32 [N, K/8]    [N]           I32 [N/8]
//     4, per_tensor           I32 [N, K/8]    []            I32 []
//     8, per_group            I8/U8 [K, N]    [K/G, N]      I8/U8 [K/G, N]
//     8, per_channel          I8/U8 [N, K]    [N]           I8/U8 [N]
//     8, per_tensor           I8/U8 [N, K]    []            I8/U8 []
//
// The first versions (mirrors amd-quark 0.6) have 8 bits per_group by output channel: weight
// [N, K], scales and zero points [N, K/G]. They lose the zero point of 4 bits per_tensor.
//
// int4 is two's complement in its nibble. Eight nibbles lie in a word, in AWQ's order
// (kernels/awq.h) where the config's export.pack_method is "reorder", and one after the other where
// it is "order"; so do the zero points along N. The last word of a line may be padded: along N, to
// which scales there are; along K, of channels that nothing tells from others. Zero points of
// symmetric modules are 0. Those of unsigned codes always count: Quark calls some of them
// symmetric.

#include <cstdint>
#include <memory>
#include <optional>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/model/quantized_linear.h"

namespace prepack::quark {

struct IntegerMeaning {
  uint32_t bits = 4;
  bool is_signed = true;
  Granularity granularity = Granularity::kGroup;  // or kChannel, or kTensor
  uint64_t group_size = 0;                        // of kGroup
  bool symmetric = true;
  bool awq_order = true;
  ActivationScheme activations = {};
  bool unsigned_inputs = false;  // static zero points are bytes from 0 to 255

  friend bool operator==(const IntegerMeaning&, const IntegerMeaning&) = default;
};

// Describes a module that has a `weight` and is quantized so: checks its tensors against each other
// and the meaning, from headers alone. The result refers to the checkpoint.
Result<std::unique_ptr<QuantizedLinear>> DescribeIntegers(const Checkpoint& checkpoint,
                                                          const ModuleTensors& module,
                                                          const IntegerMeaning& meaning);

// A module whose tensors have been checked: dtypes, and shapes against n, k and scheme.
struct IntegerParts {
  std::string_view module;
  Scheme scheme;
  uint64_t n = 0;
  uint64_t k = 0;
  // What shares a stored scale. Where that is the tensor, the scheme says kChannel but for
  // symmetric bytes: no kernel or format takes a single scale with zero points or 4 bits, and all
  // take the same one for every channel.
  Granularity stored = Granularity::kGroup;
  bool is_signed = true;
  bool awq_order = true;
  bool groups_by_outputs = false;  // of the first versions; not of the later ones
  const StoredTensor* weight = nullptr;
  const StoredTensor* scale = nullptr;
  const StoredTensor* zero_point = nullptr;  // nullptr: 0 throughout
  std::optional<InputQuantization> input;
  std::vector<const StoredTensor*> side_tensors;
};

// All of the table above but 4 bits per group, which is AWQ's layout (formats/awq).
std::unique_ptr<QuantizedLinear> MakeIntegerLinear(const Checkpoint& checkpoint,
                                                   const IntegerParts& parts);

}  // namespace prepack::quark
