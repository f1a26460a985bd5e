#pragma once

// What config.json says about the language model. Multimodal models nest its config under different
// names; all code looks it up here.

#include <optional>
#include <span>
#include <string_view>

#include "prepack/base/dtype.h"
#include "prepack/container/json.h"

namespace prepack {

// The names under which models nest the config of their language model, in the order in which they
// are looked up.
std::span<const std::string_view> NestedConfigNames();

// The config of the language model: `config` itself unless it nests one. The result lives as long
// as `config`.
const Json& LanguageConfig(const Json& config);

// model_type of the language model; empty where it says none. Lives as long as `config`.
std::string_view ModelTypeOf(const Json& config);

// The dtype of the activations: `dtype`, or `torch_dtype` as older transformers write it, of the
// whole model or else of its language model. Nothing if neither says a float type that we know.
std::optional<DType> DTypeOfConfig(const Json& config);

}  // namespace prepack
