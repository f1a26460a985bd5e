#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/fp8/config.h"
#include "prepack/formats/module_match.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/readers.h"
#include "prepack/formats/rows/row_checks.h"
#include "prepack/formats/rows/row_linear.h"
#include "prepack/formats/stored_linear.h"

namespace prepack {

namespace {

// The names that writers give the scale; no module has two of them.
constexpr std::array<std::string_view, 3> kScaleNames = {"weight_scale_inv", "weight_scale",
                                                         "scale"};

bool IsFloat8(DType dtype) {
  return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2 || dtype == DType::kF8E4M3Fnuz ||
         dtype == DType::kF8E5M2Fnuz;
}

class Fp8Reader {
 public:
  Fp8Reader(const Checkpoint& checkpoint, const Fp8Config& config,
            const std::vector<ModuleTensors>& modules)
      : checkpoint_(checkpoint), config_(config), modules_(modules) {}

  Result<std::unique_ptr<QuantizedLinear>> Describe(const ModuleTensors& module,
                                                    const StoredTensor& weight) const;

 private:
  Status CheckWeight(const ModuleTensors& module, const StoredTensor& weight) const;
  Result<const StoredTensor*> FindScale(const ModuleTensors& module,
                                        const StoredTensor& weight) const;
  const StoredTensor* StackedScaleOf(std::string_view module) const;
  ScaleForm FormOf(const StoredTensor& scale) const;
  Scheme SchemeOf(const Fp8Block& block, const StoredTensor& scale, const MatrixShape& shape) const;
  Status AddInput(const ModuleTensors& module, RowModule& parts) const;

  const Checkpoint& checkpoint_;
  const Fp8Config& config_;
  const std::vector<ModuleTensors>& modules_;  // ascending by name
};

Status Fp8Reader::CheckWeight(const ModuleTensors& module, const StoredTensor& weight) const {
  if (weight.dtype != DType::kF8E4M3) {
    return Unsupported(checkpoint_.Where(weight), "FP8 weights of this type are not supported")
        .Found(DTypeName(weight.dtype))
        .Expected("F8_E4M3")
        .Id(FindingId("storage-unsupported"));
  }
  const TensorShape& dims = weight.shape;
  if (dims.size() > 2) {
    return Unsupported(checkpoint_.Where(weight), "stacked FP8 weights are not supported yet")
        .Found(ShowShape(dims))
        .Expected("[N, K], one matrix per module")
        .Hint("Save the model again with one linear layer per expert")
        .Id(FindingId("storage-unsupported"));
  }
  if (dims.size() != 2 || dims[0] == 0 || dims[1] == 0) {
    return Malformed(checkpoint_.Where(weight), "the weight is empty or not a matrix")
        .Found(ShowShape(dims))
        .Expected("[N, K]")
        .Id(FindingId("tensor-shape"));
  }
  if (ClassOfModule(module.name) == ModuleClass::kEmbedding ||
      config_.NamesEmbedding(module.name)) {
    return Unsupported(module.name, "quantized embeddings are not supported")
        .Found(fmt::format("{} {}", DTypeName(weight.dtype), ShowShape(dims)))
        .Hint("Leave the embedding out when quantizing")
        .Id(FindingId("embedding-quantized"));
  }
  return {};
}

Result<const StoredTensor*> Fp8Reader::FindScale(const ModuleTensors& module,
                                                 const StoredTensor& weight) const {
  const StoredTensor* found = nullptr;
  std::string_view first;
  for (const std::string_view name : kScaleNames) {
    // What divides has one name only.
    if (config_.scale_divides && name != kScaleNames.front()) continue;
    const StoredTensor* scale = module.Find(name);
    if (scale == nullptr) continue;
    if (found != nullptr) {
      return Malformed(checkpoint_.Where(*found),
                       fmt::format("the module has both {} and {}", name, first))
          .Hint("Only one of them can be the scale; save the model again")
          .Id(FindingId("weight-twice"));
    }
    found = scale;
    first = name;
  }
  if (found != nullptr) return found;
  if (const StoredTensor* stacked = StackedScaleOf(module.name)) {
    return Unsupported(checkpoint_.Where(weight),
                       "FP8 experts of which each has a weight of its own, but whose scales are "
                       "stacked in one tensor, are not supported yet")
        .Found(fmt::format("{} {}", stacked->name, ShowShape(stacked->shape)))
        .Expected(fmt::format("{}.weight_scale_inv", module.name))
        .Hint(
            "transformers saves experts like this; store a slice of the scales beside each "
            "weight, or quantize the float model in a format that is read")
        .Id(FindingId("storage-unsupported"));
  }
  return Malformed(checkpoint_.Where(weight), "the scale of the FP8 weight is missing")
      .Expected(config_.scale_divides
                    ? fmt::format("{}.weight_scale_inv", module.name)
                    : fmt::format("{}.weight_scale_inv, .weight_scale or .scale", module.name))
      .Hint("A shard is missing, or the index is wrong")
      .Id(FindingId("tensor-missing"));
}

// transformers splits the weights of experts when it saves them, but not their scales:
// EXPERTS.N.X.weight then has its scale in EXPERTS.X_scale_inv [experts, …], and gate_proj and
// up_proj have theirs in EXPERTS.gate_up_proj_scale_inv.
const StoredTensor* Fp8Reader::StackedScaleOf(std::string_view module) const {
  const size_t leaf = module.rfind('.');
  if (leaf == std::string_view::npos) return nullptr;
  const std::string_view expert = module.substr(0, leaf);
  const size_t dot = expert.rfind('.');
  if (dot == std::string_view::npos) return nullptr;
  uint64_t number = 0;
  const char* end = expert.data() + expert.size();
  const auto parsed = std::from_chars(expert.data() + dot + 1, end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) return nullptr;
  const auto stack =
      std::ranges::lower_bound(modules_, expert.substr(0, dot), {}, &ModuleTensors::name);
  if (stack == modules_.end() || stack->name != expert.substr(0, dot)) return nullptr;
  const std::string_view name = module.substr(leaf + 1);
  const std::string_view word = name.substr(0, name.find('_'));  // "up" is in "gate_up_proj"
  const StoredTensor* any = nullptr;
  for (const auto& [suffix, tensor] : stack->tensors) {
    if (!suffix.ends_with("_scale_inv") || tensor->shape.empty() || number >= tensor->shape[0]) {
      continue;
    }
    if (suffix.find(word) != std::string_view::npos) return tensor;
    any = tensor;
  }
  return any;
}

ScaleForm Fp8Reader::FormOf(const StoredTensor& scale) const {
  if (config_.scale_divides) return ScaleForm::kDivisor;
  const bool is_exponent =
      scale.dtype == DType::kF8E8M0 || (scale.dtype == DType::kU8 && config_.byte_exponents);
  return is_exponent ? ScaleForm::kExponent : ScaleForm::kFactor;
}

// Without blocks, the scale tells whether there is one per module or one per channel.
Scheme Fp8Reader::SchemeOf(const Fp8Block& block, const StoredTensor& scale,
                           const MatrixShape& shape) const {
  Scheme scheme;
  scheme.code = CodeType::kF8E4M3;
  scheme.bits = 8;
  scheme.group_size = shape.k;
  if (block) {
    scheme.granularity = Granularity::kBlock;
    scheme.group_size = (*block)[1];
    scheme.scale_rows = (*block)[0];
  } else if (ElementCount(scale) == 1) {
    scheme.granularity = Granularity::kTensor;
    scheme.scale_rows = shape.n;
  } else {
    scheme.granularity = Granularity::kChannel;
    scheme.scale_rows = 1;
  }
  ActivationScheme& activations = scheme.activations;
  if (config_.activations == Fp8Config::Activations::kNone) return scheme;
  activations.type = ActivationType::kFloat;
  activations.bits = 8;
  activations.dynamic = config_.activations == Fp8Config::Activations::kDynamic;
  if (!activations.dynamic) {
    activations.granularity = ActivationGranularity::kTensor;
  } else if (block) {
    activations.granularity = ActivationGranularity::kGroup;
    activations.group_size = (*block)[1];
  }
  return scheme;
}

Status Fp8Reader::AddInput(const ModuleTensors& module, RowModule& parts) const {
  const StoredTensor* scale = module.Find("input_scale");
  if (const StoredTensor* of_transformers = module.Find("activation_scale")) {
    if (scale != nullptr) {
      return Malformed(checkpoint_.Where(*of_transformers),
                       "the module has both input_scale and activation_scale")
          .Hint("Only one of them can be the scale; save the model again")
          .Id(FindingId("weight-twice"));
    }
    scale = of_transformers;
  }
  if (scale != nullptr) parts.side_tensors.push_back(scale);
  if (config_.activations != Fp8Config::Activations::kStatic) return {};
  PREPACK_TRY_ASSIGN(
      const InputQuantization input,
      ReadStaticInput(checkpoint_, module.name, parts.scheme.activations, scale, nullptr));
  parts.input = input;
  return {};
}

Result<std::unique_ptr<QuantizedLinear>> Fp8Reader::Describe(const ModuleTensors& module,
                                                             const StoredTensor& weight) const {
  Status status = CheckWeight(module, weight);
  if (!status.ok()) return status;
  PREPACK_TRY_ASSIGN(const StoredTensor* scale, FindScale(module, weight));
  PREPACK_TRY_ASSIGN(const Fp8Block block, config_.BlockOf(module.name));

  RowModule parts;
  parts.module = module.name;
  parts.n = weight.shape[0];
  parts.k = weight.shape[1];
  parts.stored = RowCodes::kBytes;
  parts.codes = &weight;
  parts.scale = scale;
  parts.scale_form = FormOf(*scale);
  const MatrixShape shape{.n = parts.n, .k = parts.k, .experts = std::nullopt};
  parts.scheme = SchemeOf(block, *scale, shape);
  status = RefuseInputsFirst(checkpoint_, module.name, weight, parts.n, parts.k);
  if (!status.ok()) return status;
  status = CheckScaleTensor(checkpoint_, *scale, shape, parts.scheme, parts.scale_form);
  if (status.ok()) status = AddInput(module, parts);
  if (!status.ok()) return status;
  return std::unique_ptr<QuantizedLinear>(std::make_unique<RowLinear>(checkpoint_, parts));
}

}  // namespace

Result<QuantizedModel> ReadFp8(const Checkpoint& checkpoint) {
  PREPACK_TRY_ASSIGN(const std::vector<QuantizationConfig> declared,
                     FindQuantizationConfigs(checkpoint));
  PREPACK_TRY_ASSIGN(const Fp8Config config, ParseFp8Configs(declared));

  QuantizedModel model;
  model.format = "fp8";
  model.quantization_config = declared.front().fields;
  const std::vector<ModuleTensors> modules = GroupByModule(checkpoint);
  const Fp8Reader reader(checkpoint, config, modules);
  FindingTally findings;
  for (const ModuleTensors& module : modules) {
    const StoredTensor* weight = module.Find("weight");
    if (weight == nullptr || !IsFloat8(weight->dtype)) continue;
    const Result<bool> excluded = config.Excludes(module.name);
    if (!excluded.ok()) {
      model.AddError(excluded.status());
      continue;
    }
    if (*excluded) {
      findings.Add("module-ignored-but-quantized", module.name,
                   "the config excludes the module, but its weight is FP8");
    }
    model.Add(reader.Describe(module, *weight));
  }
  if (model.modules.empty() && model.errors.empty()) {
    return Malformed(config.where, "the config declares FP8 weights, but no tensor is one")
        .Expected("tensors named MODULE.weight of dtype F8_E4M3")
        .Hint("The config may belong to another checkpoint, or shards are missing")
        .Id(FindingId("nothing-quantized"));
  }
  model.findings = findings.Take();
  return model;
}

}  // namespace prepack
