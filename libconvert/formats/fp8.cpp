#include "formats/fp8.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "formats/finding_tally.h"
#include "formats/json_fields.h"
#include "formats/module_tensors.h"
#include "formats/quantization_config.h"
#include "formats/row_checks.h"
#include "formats/row_linear.h"

namespace prepack {

namespace {

struct Fp8Config {
  std::string where;
  bool dynamic = true;                           // activation_scheme
  std::optional<std::array<uint64_t, 2>> block;  // weight_block_size: rows, columns
  std::vector<std::string> ignored;              // names of modules
};

Result<std::optional<std::array<uint64_t, 2>>> ParseFp8Block(const Json& fields,
                                                             std::string_view where) {
  const Json* value = JsonMember(fields, "weight_block_size");
  if (value == nullptr) return std::optional<std::array<uint64_t, 2>>();
  std::array<uint64_t, 2> block = {};
  bool sound = value->is_array() && value->size() == 2;
  for (size_t i = 0; sound && i < 2; ++i) {
    sound = (*value)[i].is_number_unsigned() && (*value)[i].get<uint64_t>() > 0;
    if (sound) block[i] = (*value)[i].get<uint64_t>();
  }
  if (sound) return std::optional(block);
  return Malformed(FieldPath(where, "weight_block_size"), "the block is not two positive numbers")
      .Found(ShowJson(*value))
      .Expected("[rows, columns]")
      .Id(FindingId("config-field-invalid"));
}

Result<std::vector<std::string>> ParseIgnored(const Json& fields, std::string_view where) {
  std::vector<std::string> names;
  for (const std::string_view key : {"modules_to_not_convert", "ignored_layers"}) {
    const Json* list = JsonMember(fields, key);
    if (list == nullptr) continue;
    const bool strings = list->is_array() && std::ranges::all_of(*list, [](const Json& entry) {
                           return entry.is_string();
                         });
    if (!strings) {
      return Malformed(FieldPath(where, key), "the field has the wrong type")
          .Found(ShowJson(*list))
          .Expected("a list of strings")
          .Id(FindingId("config-field-invalid"));
    }
    for (const Json& name : *list) names.push_back(name.get<std::string>());
  }
  return names;
}

Result<Fp8Config> ParseConfig(const QuantizationConfig& declared) {
  const Json& fields = *declared.fields;
  Fp8Config config;
  config.where = declared.where;
  const Result<std::optional<std::string>> activations =
      OptionalString(fields, "activation_scheme", declared.where);
  if (!activations.ok()) return activations.status();
  const std::string scheme = LowerCase(activations->value_or("dynamic"));
  if (scheme != "dynamic" && scheme != "static") {
    return Unsupported(FieldPath(declared.where, "activation_scheme"), "unknown keyword")
        .Found(fmt::format("\"{}\"", Printable(scheme)))
        .Expected("dynamic or static")
        .Id(FindingId("config-keyword-unknown"));
  }
  config.dynamic = scheme == "dynamic";
  const Result<std::optional<std::string>> format = OptionalString(fields, "fmt", declared.where);
  if (!format.ok()) return format.status();
  if (LowerCase(format->value_or("e4m3")) != "e4m3") {
    return Unsupported(FieldPath(declared.where, "fmt"), "only E4M3 weights are read")
        .Found(fmt::format("\"{}\"", Printable(**format)))
        .Expected("e4m3")
        .Id(FindingId("scheme-unsupported"));
  }
  Result<std::optional<std::array<uint64_t, 2>>> block = ParseFp8Block(fields, declared.where);
  if (!block.ok()) return block.status();
  config.block = *block;
  Result<std::vector<std::string>> ignored = ParseIgnored(fields, declared.where);
  if (!ignored.ok()) return ignored.status();
  config.ignored = *std::move(ignored);
  return config;
}

std::string ShowBlock(const std::optional<std::array<uint64_t, 2>>& block) {
  return block ? fmt::format("[{}, {}]", (*block)[0], (*block)[1]) : "absent";
}

// Lists of what is not quantized may differ: the tensors win over them anyway.
Status CompareCopy(const Fp8Config& first, const Fp8Config& copy) {
  const auto conflict = [&](std::string_view key, std::string_view found,
                            std::string_view expected) {
    return Malformed(FieldPath(copy.where, key), "two copies of the quantization config disagree")
        .Found(found)
        .Expected(fmt::format("{}, as {} says", expected, first.where))
        .Hint("Make them equal: readers disagree about which of them counts")
        .Id(FindingId("config-conflict"));
  };
  if (first.block != copy.block) {
    return conflict("weight_block_size", ShowBlock(copy.block), ShowBlock(first.block));
  }
  if (first.dynamic == copy.dynamic) return {};
  return conflict("activation_scheme", copy.dynamic ? "dynamic" : "static",
                  first.dynamic ? "dynamic" : "static");
}

Result<Fp8Config> ParseConfigs(const std::vector<QuantizationConfig>& declared) {
  Result<Fp8Config> first = ParseConfig(declared.front());
  if (!first.ok()) return first;
  for (size_t i = 1; i < declared.size(); ++i) {
    const Result<Fp8Config> copy = ParseConfig(declared[i]);
    if (!copy.ok()) return copy.status();
    Status status = CompareCopy(*first, *copy);
    if (!status.ok()) return status;
  }
  return first;
}

Scheme MakeScheme(const Fp8Config& config, const MatrixShape& shape) {
  Scheme scheme;
  scheme.code = CodeType::kF8E4M3;
  scheme.bits = 8;
  scheme.granularity = config.block ? Granularity::kBlock : Granularity::kTensor;
  scheme.group_size = config.block ? (*config.block)[1] : shape.k;
  scheme.scale_rows = config.block ? (*config.block)[0] : shape.n;
  ActivationScheme& activations = scheme.activations;
  activations.type = ActivationType::kFloat;
  activations.bits = 8;
  activations.dynamic = config.dynamic;
  if (!config.dynamic) {
    activations.granularity = ActivationGranularity::kTensor;
  } else if (config.block) {
    activations.granularity = ActivationGranularity::kGroup;
    activations.group_size = (*config.block)[1];
  }
  return scheme;
}

bool IsFloat8(DType dtype) {
  return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2 || dtype == DType::kF8E4M3Fnuz ||
         dtype == DType::kF8E5M2Fnuz;
}

// The scale by the name that the config asks for; the other name is accepted too.
Result<const StoredTensor*> FindScale(const Checkpoint& checkpoint, const ModuleTensors& module,
                                      const StoredTensor& weight) {
  const StoredTensor* inverse = module.Find("weight_scale_inv");
  const StoredTensor* plain = module.Find("weight_scale");
  if (inverse != nullptr && plain != nullptr) {
    return Malformed(checkpoint.Where(*inverse),
                     "the module has both weight_scale and weight_scale_inv")
        .Hint("Only one of them can be the scale; save the model again")
        .Id(FindingId("weight-twice"));
  }
  const StoredTensor* scale = inverse != nullptr ? inverse : plain;
  if (scale != nullptr) return scale;
  return Malformed(checkpoint.Where(weight), "the scale of the FP8 weight is missing")
      .Expected(fmt::format("{}.weight_scale_inv or {}.weight_scale", module.name, module.name))
      .Hint("A shard is missing, or the index is wrong")
      .Id(FindingId("tensor-missing"));
}

Status DescribeModule(const Checkpoint& checkpoint, const ModuleTensors& module,
                      const StoredTensor& weight, const Fp8Config& config, QuantizedModel& model) {
  if (weight.dtype != DType::kF8E4M3) {
    return Unsupported(checkpoint.Where(weight), "FP8 weights of this type are not read")
        .Found(DTypeName(weight.dtype))
        .Expected("F8_E4M3")
        .Id(FindingId("storage-unsupported"));
  }
  const TensorShape& dims = weight.shape;
  if (dims.size() != 2 || dims[0] == 0 || dims[1] == 0) {
    return Malformed(checkpoint.Where(weight), "the weight is no matrix, or is empty")
        .Found(ShowShape(dims))
        .Expected("[N, K]")
        .Id(FindingId("tensor-shape"));
  }
  const Result<const StoredTensor*> scale = FindScale(checkpoint, module, weight);
  if (!scale.ok()) return scale.status();

  RowModule parts;
  parts.module = module.name;
  parts.n = dims[0];
  parts.k = dims[1];
  parts.stored = RowCodes::kBytes;
  parts.codes = &weight;
  parts.scale = *scale;
  const MatrixShape shape{.n = parts.n, .k = parts.k, .experts = std::nullopt};
  parts.scheme = MakeScheme(config, shape);
  Status status = CheckScaleTensor(checkpoint, **scale, shape, parts.scheme);
  if (!status.ok()) return status;
  if (const StoredTensor* input_scale = module.Find("input_scale")) {
    parts.side_tensors.push_back(input_scale);
  }
  if (!config.dynamic) {
    const Result<InputQuantization> input = ReadStaticInput(
        checkpoint, module.name, parts.scheme.activations, module.Find("input_scale"), nullptr);
    if (!input.ok()) return input.status();
    parts.input = *input;
  }
  model.modules.push_back(std::make_unique<RowLinear>(checkpoint, parts));
  return {};
}

}  // namespace

Result<QuantizedModel> ReadFp8(const Checkpoint& checkpoint) {
  const Result<std::vector<QuantizationConfig>> declared = FindQuantizationConfigs(checkpoint);
  if (!declared.ok()) return declared.status();
  const Result<Fp8Config> config = ParseConfigs(*declared);
  if (!config.ok()) return config.status();

  QuantizedModel model;
  model.format = "fp8";
  model.quantization_config = declared->front().fields;
  FindingTally findings;
  for (const ModuleTensors& module : GroupByModule(checkpoint)) {
    const StoredTensor* weight = module.Find("weight");
    if (weight == nullptr || !IsFloat8(weight->dtype)) continue;
    if (std::ranges::find(config->ignored, module.name) != config->ignored.end()) {
      findings.Add("module-ignored-but-quantized", module.name,
                   "the config excludes the module, but its weight is FP8");
    }
    Status status = DescribeModule(checkpoint, module, *weight, *config, model);
    if (!status.ok()) model.errors.push_back(std::move(status));
  }
  if (model.modules.empty() && model.errors.empty()) {
    return Malformed(config->where, "the config declares FP8 weights, but no tensor is one")
        .Expected("tensors named MODULE.weight of dtype F8_E4M3")
        .Hint("The config may belong to another checkpoint, or shards are missing")
        .Id(FindingId("nothing-quantized"));
  }
  model.findings = findings.Take();
  return model;
}

}  // namespace prepack
