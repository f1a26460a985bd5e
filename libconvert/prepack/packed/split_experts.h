#pragma once

// A checkpoint that is made of one with stacked experts has them one by one
// (model/split_linear.h), as the readers of its format expect. To be compared with its source, that
// is split in the same way.

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/formats/format.h"
#include "prepack/model/quantized_linear.h"
#include "prepack/packed/manifest.h"

namespace prepack {

// The modules of a model, some in pieces.
struct SplitModules {
  std::vector<std::unique_ptr<QuantizedLinear>> pieces;
  std::vector<const QuantizedLinear*> all;  // pieces, and the modules that stay whole
};

// `config` is that of the source. The model must outlive the result. Modules that are taken are
// left out. kUnsupported when pieces would cut blocks of channels that share a scale.
Result<SplitModules> SplitExperts(const Json& config, const QuantizedModel& model,
                                  std::span<const QuantizedLinear* const> taken = {});

// The model_type of gpt-oss, which has the output channels of gate and up in turn.
inline constexpr std::string_view kGptOss = "gpt_oss";

// The class of the model, if it reads the experts of a layer as one tensor and in no other way;
// else empty. `plain`: when they are not quantized. Loaders of some classes read quantized ones one
// by one all the same.
std::string_view ClassWithStacks(const Json& config, bool plain);

// Puts the pieces into the model, in the place of what they are pieces of, if the manifest is that
// of a checkpoint.
Status SplitAsPacked(const Manifest& manifest, const Json& config, QuantizedModel& model);

}  // namespace prepack
