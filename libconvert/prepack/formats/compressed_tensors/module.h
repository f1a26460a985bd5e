#pragma once

// The tensors of a compressed-tensors checkpoint, module by module, and what they are evidence of.

#include <memory>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/compressed_tensors/config.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/rows/row_checks.h"
#include "prepack/formats/rows/row_linear.h"
#include "prepack/model/quantized_linear.h"
#include "prepack/model/scheme.h"

namespace prepack::ct {

// The tensors named MODULE.SUFFIX, whichever shards they lie in; nullptr for those that are absent.
struct Module {
  std::string_view name;  // points into the checkpoint, like all of this
  const StoredTensor* weight = nullptr;
  const StoredTensor* packed = nullptr;
  const StoredTensor* scale = nullptr;
  const StoredTensor* zero_point = nullptr;
  const StoredTensor* shape = nullptr;
  const StoredTensor* g_idx = nullptr;
  const StoredTensor* global_scale = nullptr;
  const StoredTensor* scale_inv = nullptr;  // a scale, by its name in quant_method fp8
  std::vector<const StoredTensor*> others;  // bias, input_scale, …

  // The part of a tensor's name behind the module.
  std::string_view SuffixOf(const StoredTensor& tensor) const;
};

// Refers to the checkpoint, which must live longer.
Module SortTensors(const ModuleTensors& group);

// How a module is stored, as far as it is read.
enum class Storage : uint8_t {
  kPlain,          // not quantized: passes through
  kPackQuantized,  // weight_packed I32 [N, words], or [E, N, words]
  kInt8,           // weight I8 [N, K], or [E, N, K]
  kFloat8,         // weight F8_E4M3 of the same shapes
  kMxfp8,          // the same, and scales that are exponents
  kMxfp4,          // weight_packed U8 [N, K/2], or [E, N, K/2]; scales are exponents
  kNvfp4,          // weight_packed U8 [N, K/2], scales F8_E4M3, and a global scale
};
// Codes are floating-point numbers.
constexpr bool IsFloat(Storage storage) {
  return storage != Storage::kPackQuantized && storage != Storage::kInt8;
}
// Codes are FP4, two per byte.
constexpr bool IsFloat4(Storage storage) {
  return storage == Storage::kMxfp4 || storage == Storage::kNvfp4;
}
// The format that stores so: "pack-quantized", "int-quantized", "float-quantized" and so on.
std::string_view StorageName(Storage storage);

// Decides by the tensors alone. Storage that is known but not read is kUnsupported and named;
// tensors that cannot belong together are kMalformed.
Result<Storage> ClassifyModule(const Checkpoint& checkpoint, const Module& module);

// The shape of a pack-quantized weight, and which of the two packings it is in: from headers and
// the few bytes of weight_shape alone.

struct PackedShape {
  MatrixShape shape;
  RowCodes packing = RowCodes::kDense;
};

// `module` has been classified as kPackQuantized, and `weights` are those of its group.
//
// For 3, 5, 6 and 7 bits the number of words tells the packing. Where both packings give the same
// number, the version of the config decides (dense since 0.18.0); where there is none, or where it
// contradicts the number of words, the checkpoint is kMalformed: a guess would scramble the
// weights.
Result<PackedShape> FindPackedShape(const Checkpoint& checkpoint, const Module& module,
                                    const Args& weights, const Config& config,
                                    FindingTally& findings);

// What a config group says of a module, in the terms of the canonical layout.

// The scheme of a module that is stored as `storage`. A group that cannot mean such tensors is
// kMalformed, one that asks for what is not read kUnsupported.
Result<Scheme> MakeScheme(const Module& module, const Group& group, Storage storage,
                          const MatrixShape& shape);

// kMalformed unless the group quantizes weights of the type that the storage holds.
Status CheckGroup(const Module& module, const Group& group, Storage storage);

// Describes one quantized module of a compressed-tensors checkpoint: checks that its config group
// can be read and that every tensor agrees with it, from headers and a few small tensors alone.

// `module` has been classified as `storage`, which is not kPlain; `group` is the one that describes
// it. The result has one linear layer, or one for each expert of stacked tensors, named MODULE.0,
// MODULE.1, …; it refers to the checkpoint.
Result<std::vector<std::unique_ptr<QuantizedLinear>>> DescribeModule(
    const Checkpoint& checkpoint, const Module& module, const Group& group, Storage storage,
    const Config& config, FindingTally& findings);

}  // namespace prepack::ct
