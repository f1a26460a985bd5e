#include "prepack/formats/fp8/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/container/json_fields.h"
#include "prepack/container/model_config.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_match.h"

namespace prepack::fp8 {
namespace {

constexpr std::string_view kGateUp = "gate_up_proj";
constexpr std::string_view kDown = "down_proj";
// Each expert becomes a module of its own; real models have some hundreds.
constexpr uint64_t kMaxExperts = 8192;

const StoredTensor* ScaleOfStack(const ModuleTensors& module, std::string_view suffix) {
  for (const std::string_view end : {"_scale_inv", "_scale"}) {
    if (const StoredTensor* scale = module.Find(fmt::format("{}{}", suffix, end))) return scale;
  }
  return nullptr;
}

// Are the matrices stored [K, N]? By the shapes of both tensors of the experts.
std::optional<bool> TransposedByShapes(const ModuleTensors& experts) {
  const StoredTensor* gate_up = experts.Find(kGateUp);
  const StoredTensor* down = experts.Find(kDown);
  if (gate_up == nullptr || down == nullptr || gate_up->shape.size() != 3 ||
      down->shape.size() != 3) {
    return std::nullopt;
  }
  const TensorShape& a = gate_up->shape;
  const TensorShape& b = down->shape;
  // Without a quotient, which may round.
  const bool rows_first = a[1] == b[2] + b[2] && a[2] == b[1];
  const bool columns_first = a[2] == b[1] + b[1] && a[1] == b[2];
  if (rows_first == columns_first) return std::nullopt;
  return columns_first;
}

// The same by the size that goes in and out of all experts.
std::optional<bool> TransposedByConfig(const Json& config, std::string_view suffix,
                                       const StoredTensor& tensor) {
  const Json* hidden = JsonMember(LanguageConfig(config), "hidden_size");
  if (hidden == nullptr || !hidden->is_number_unsigned()) return std::nullopt;
  const bool rows = tensor.shape[1] == *hidden;
  const bool columns = tensor.shape[2] == *hidden;
  if (rows == columns) return std::nullopt;
  if (suffix == kGateUp) return rows;
  if (suffix == kDown) return columns;
  return std::nullopt;
}

Result<bool> IsTransposed(const Checkpoint& checkpoint, const ModuleTensors& experts,
                          std::string_view suffix, const StoredTensor& tensor) {
  std::optional<bool> transposed = TransposedByShapes(experts);
  if (!transposed) transposed = TransposedByConfig(checkpoint.config(), suffix, tensor);
  if (transposed) return *transposed;
  return Unsupported(checkpoint.Where(tensor),
                     "it is not clear which dimension of the stacked FP8 experts is the outputs")
      .Found(ShowShape(tensor.shape))
      .Expected("gate_up_proj and down_proj that fit each other, or hidden_size in config.json")
      .Hint("Save the model again with one linear layer per expert")
      .Id(FindingId("storage-unsupported"));
}

// kMalformed unless the scales have the shape that the stored matrices ask for; `shape` and the
// scheme are those of the module.
Status CheckStackScales(const Checkpoint& checkpoint, const StoredTensor& scale,
                        const MatrixShape& shape, const Scheme& scheme, ScaleForm form,
                        bool transposed) {
  if (!transposed || scheme.granularity == Granularity::kTensor) {
    return CheckScaleTensor(checkpoint, scale, shape, scheme, form);
  }
  if (scheme.granularity != Granularity::kBlock) {
    return Unsupported(checkpoint.Where(scale),
                       scheme.granularity == Granularity::kGroup
                           ? "transposed MXFP8 experts are not supported"
                           : "transposed FP8 experts with one scale per channel are not supported")
        .Found(ShowShape(scale.shape))
        .Expected("scales per block, or one for each expert")
        .Hint("Save the model again with one linear layer per expert")
        .Id(FindingId("storage-unsupported"));
  }
  // As if the stored matrix were the module.
  Scheme stored = scheme;
  std::swap(stored.scale_rows, stored.group_size);
  return CheckScaleTensor(checkpoint, scale, {.n = shape.k, .k = shape.n, .experts = shape.experts},
                          stored, form);
}

Status CheckStack(const Checkpoint& checkpoint, const ModuleTensors& experts,
                  const StoredTensor& weight, const Meaning& meaning) {
  PREPACK_TRY(CheckModuleName(experts.name));
  if (weight.dtype != DType::kF8E4M3) {
    return Unsupported(checkpoint.Where(weight), "FP8 weights of this type are not supported")
        .Found(DTypeName(weight.dtype))
        .Expected("F8_E4M3")
        .Id(FindingId("storage-unsupported"));
  }
  const TensorShape& dims = weight.shape;
  if (std::ranges::find(dims, uint64_t{0}) != dims.end()) {
    return Malformed(checkpoint.Where(weight), "the weight is empty")
        .Found(ShowShape(dims))
        .Id(FindingId("tensor-shape"));
  }
  if (dims[0] > kMaxExperts) {
    return Unsupported(checkpoint.Where(weight), "too many stacked experts")
        .Found(ShowShape(dims))
        .Expected(fmt::format("at most {}", kMaxExperts))
        .Id(FindingId("storage-unsupported"));
  }
  const ActivationScheme& activations = meaning.activations;
  if (activations.type != ActivationType::kNone && !activations.dynamic) {
    return Unsupported(checkpoint.Where(weight),
                       "static activations of stacked experts are not supported")
        .Id(FindingId("scheme-unsupported"));
  }
  return {};
}

}  // namespace

const StoredTensor* FindStackScale(const ModuleTensors& module, std::string_view suffix,
                                   const StoredTensor& tensor) {
  const bool is_stack = suffix != "weight" && tensor.shape.size() == 3 && IsFloat8(tensor.dtype);
  return is_stack ? ScaleOfStack(module, suffix) : nullptr;
}

Status DescribeStack(const Checkpoint& checkpoint, const ModuleTensors& experts,
                     std::string_view suffix, const Meaning& meaning, QuantizedModel& model) {
  const StoredTensor& weight = *experts.Find(suffix);
  const StoredTensor& scale = *ScaleOfStack(experts, suffix);
  PREPACK_TRY(CheckStack(checkpoint, experts, weight, meaning));
  PREPACK_TRY_ASSIGN(const bool transposed, IsTransposed(checkpoint, experts, suffix, weight));
  const TensorShape& dims = weight.shape;
  RowModule parts;
  parts.n = transposed ? dims[2] : dims[1];
  parts.k = transposed ? dims[1] : dims[2];
  parts.experts = dims[0];
  parts.stored = RowCodes::kBytes;
  parts.codes = &weight;
  parts.scale = &scale;
  parts.scale_form = meaning.form;
  const MatrixShape shape{.n = parts.n, .k = parts.k, .experts = parts.experts};
  const uint64_t scales = ElementCount(scale) == parts.experts ? 1 : 2;  // or more
  parts.scheme = SchemeOf(meaning, scales, shape);
  if (transposed && meaning.block) {
    std::swap(parts.scheme.scale_rows, parts.scheme.group_size);
  }
  PREPACK_TRY(CheckStackScales(checkpoint, scale, shape, parts.scheme, meaning.form, transposed));
  for (uint64_t expert = 0; expert < parts.experts; ++expert) {
    parts.expert = expert;
    parts.module = fmt::format("{}.{}.{}", experts.name, suffix, expert);
    if (transposed) {
      model.modules.push_back(MakeColumnLinear(checkpoint, parts));
    } else {
      model.modules.push_back(std::make_unique<RowLinear>(checkpoint, parts));
    }
  }
  return {};
}

StackedScale FindStackedScale(std::span<const ModuleTensors> modules, std::string_view module) {
  const size_t leaf = module.rfind('.');
  if (leaf == std::string_view::npos) return {};
  const std::string_view expert = module.substr(0, leaf);
  const size_t dot = expert.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::optional<uint64_t> number = ParseUint(expert.substr(dot + 1));
  if (!number) return {};
  const std::string_view experts = expert.substr(0, dot);
  const auto stack = std::ranges::lower_bound(modules, experts, {}, &ModuleTensors::name);
  if (stack == modules.end() || stack->name != experts) return {};

  const std::string_view name = module.substr(leaf + 1);
  StackedScale found{.tensor = ScaleOfStack(*stack, name), .expert = *number};
  if (found.tensor == nullptr && (name == "gate_proj" || name == "up_proj")) {
    found.tensor = ScaleOfStack(*stack, kGateUp);
    found.part = name == "up_proj" ? 1 : 0;
    found.parts = 2;
  }
  const bool is_one_of_them =
      found.tensor != nullptr && !found.tensor->shape.empty() && *number < found.tensor->shape[0];
  return is_one_of_them ? found : StackedScale{};
}

Result<std::unique_ptr<QuantizedLinear>> DescribeSplitExpert(const Checkpoint& checkpoint,
                                                             std::string_view module,
                                                             const StoredTensor& weight,
                                                             const StackedScale& scale,
                                                             const Meaning& meaning) {
  const ActivationScheme& activations = meaning.activations;
  if (activations.type != ActivationType::kNone && !activations.dynamic) {
    return Unsupported(checkpoint.Where(weight),
                       "static activations of stacked experts are not supported")
        .Id(FindingId("scheme-unsupported"));
  }
  const StoredTensor& tensor = *scale.tensor;
  RowModule parts;
  parts.module = module;
  parts.n = weight.shape[0];
  parts.k = weight.shape[1];
  parts.stored = RowCodes::kBytes;
  parts.codes = &weight;
  parts.scale = &tensor;
  parts.scale_form = meaning.form;
  const uint64_t experts = tensor.shape[0];
  const MatrixShape whole{.n = parts.n * scale.parts, .k = parts.k, .experts = experts};
  const uint64_t scales = ElementCount(tensor) == experts ? 1 : 2;  // or more
  parts.scheme = SchemeOf(meaning, scales, whole);
  PREPACK_TRY(CheckScaleTensor(checkpoint, tensor, whole, parts.scheme, meaning.form));
  const bool per_tensor = parts.scheme.granularity == Granularity::kTensor;
  if (!per_tensor && scale.parts > 1 && parts.n % parts.scheme.scale_rows != 0) {
    return Unsupported(checkpoint.Where(weight), "a block of scales lies across gate and up")
        .Found(fmt::format("{} output channels in blocks of {}", parts.n, parts.scheme.scale_rows))
        .Hint("Store a slice of the scales beside each weight, as MODULE.weight_scale_inv")
        .Id(FindingId("storage-unsupported"));
  }
  // Scales of all of an expert, then of this module.
  const uint64_t groups = CeilDiv(parts.k, parts.scheme.group_size);
  const uint64_t own = per_tensor ? 1 : CeilDiv(parts.n, parts.scheme.scale_rows) * groups;
  parts.first_scale = per_tensor ? scale.expert : (scale.expert * scale.parts + scale.part) * own;
  if (per_tensor) parts.scheme.scale_rows = parts.n;
  parts.scale_sharers = experts * scale.parts;
  return std::unique_ptr<QuantizedLinear>(std::make_unique<RowLinear>(checkpoint, parts));
}

}  // namespace prepack::fp8
