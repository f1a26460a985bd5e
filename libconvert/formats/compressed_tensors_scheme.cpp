#include "formats/compressed_tensors_scheme.h"

#include <fmt/format.h>

#include <string>

#include "formats/finding.h"

namespace prepack {

namespace {

Result<ActivationScheme> MakeActivations(const CtModule& module, const CtGroup& group) {
  if (group.output_activations) {
    return Unsupported(module.name, "quantized outputs of linear layers are not read")
        .Found(fmt::format("{} ({})", DescribeCtArgs(*group.output_activations), group.where))
        .Id(FindingId("scheme-unsupported"));
  }
  ActivationScheme activations;
  if (!group.input_activations) return activations;
  const CtArgs& args = *group.input_activations;
  activations.type = args.type == CtType::kInt ? ActivationType::kInt : ActivationType::kFloat;
  activations.bits = args.num_bits;
  activations.symmetric = args.symmetric;
  activations.dynamic = args.dynamic == CtDynamic::kYes;
  switch (args.strategy) {
    case CtStrategy::kTensor:
      activations.granularity = ActivationGranularity::kTensor;
      return activations;
    case CtStrategy::kToken:
      activations.granularity = ActivationGranularity::kToken;
      return activations;
    case CtStrategy::kGroup:
      activations.granularity = ActivationGranularity::kGroup;
      activations.group_size = args.group_size;
      if (activations.dynamic) return activations;
      break;
    default:
      break;
  }
  return Unsupported(module.name, "this quantization of activations is not read")
      .Found(fmt::format("{} ({})", DescribeCtArgs(args), group.where))
      .Expected("per tensor, per token, or dynamic per group")
      .Id(FindingId("scheme-unsupported"));
}

CodeType CodeTypeFor(CtStorage storage, const CtArgs& weights) {
  if (storage == CtStorage::kFloat8) return CodeType::kF8E4M3;
  // Bytes of 8 bits without a zero point stay as they are.
  const bool signed_bytes =
      storage == CtStorage::kInt8 && weights.num_bits == 8 && weights.symmetric;
  return signed_bytes ? CodeType::kS8 : UnsignedCodeFor(weights.num_bits);
}

// Legacy presets changed their meaning: W8A16 had one scale per channel before 0.16. Where the
// group is only known by such a name, the shape of the scales tells.
bool IsChannelOfPreset(const CtModule& module, const CtGroup& group, const MatrixShape& shape) {
  return group.preset && group.weights->group_size != shape.k && module.scale != nullptr &&
         module.scale->shape == WithExperts(shape, {shape.n, 1});
}

Status SetGranularity(const CtModule& module, const CtGroup& group, const MatrixShape& shape,
                      Scheme& scheme) {
  const CtArgs& weights = *group.weights;
  scheme.group_size = shape.k;
  switch (weights.strategy) {
    case CtStrategy::kTensor:
      scheme.granularity = Granularity::kTensor;
      scheme.scale_rows = shape.n;
      return {};
    case CtStrategy::kChannel:
      scheme.granularity = Granularity::kChannel;
      return {};
    case CtStrategy::kBlock:
      scheme.granularity = Granularity::kBlock;
      scheme.scale_rows = weights.block[0];
      scheme.group_size = weights.block[1];
      return {};
    case CtStrategy::kGroup:
      break;
    default:
      return Unsupported(module.name, fmt::format("weights with strategy {} are not read",
                                                  CtStrategyName(weights.strategy)))
          .Found(fmt::format("{} ({})", DescribeCtArgs(weights), group.where))
          .Expected("tensor, channel, group or block")
          .Id(FindingId("scheme-unsupported"));
  }
  if (IsChannelOfPreset(module, group, shape)) {
    scheme.granularity = Granularity::kChannel;
    return {};
  }
  scheme.granularity = Granularity::kGroup;
  scheme.group_size = weights.group_size;
  if (shape.k % weights.group_size == 0) return {};
  return Malformed(module.name, "K is not a multiple of the group size")
      .Found(fmt::format("K = {}, group size {}", shape.k, weights.group_size))
      .Hint("No release of compressed-tensors writes a short last group")
      .Id(FindingId("group-size-mismatch"));
}

}  // namespace

Status CheckCtGroup(const CtModule& module, const CtGroup& group, CtStorage storage) {
  const auto contradict = [&](std::string_view what) {
    return Malformed(module.name,
                     fmt::format("the module is stored {}, but {}", CtStorageName(storage), what))
        .Found(group.where)
        .Id(FindingId("module-scheme-contradiction"));
  };
  if (!group.weights) return contradict("its config group does not quantize weights");
  const bool is_float = group.weights->type == CtType::kFloat;
  const bool stored_float = storage == CtStorage::kFloat8;
  if (is_float != stored_float || (is_float && group.weights->num_bits != 8)) {
    return contradict(fmt::format("its config group says {}", DescribeCtArgs(*group.weights)));
  }
  return {};
}

Result<Scheme> MakeCtScheme(const CtModule& module, const CtGroup& group, CtStorage storage,
                            const MatrixShape& shape) {
  const CtArgs& weights = *group.weights;
  Scheme scheme;
  scheme.code = CodeTypeFor(storage, weights);
  scheme.bits = weights.num_bits;
  scheme.symmetric = weights.symmetric;
  Status status = SetGranularity(module, group, shape, scheme);
  if (!status.ok()) return status;
  Result<ActivationScheme> activations = MakeActivations(module, group);
  if (!activations.ok()) return activations.status();
  scheme.activations = *activations;
  return scheme;
}

}  // namespace prepack
