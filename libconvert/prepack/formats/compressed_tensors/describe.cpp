#include "prepack/formats/compressed_tensors/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/group_order.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/rows/row_linear.h"
#include "prepack/formats/stored_linear.h"

namespace prepack::ct {

namespace {

Result<ActivationScheme> MakeActivations(const Module& module, const Group& group) {
  if (group.output_activations) {
    return Unsupported(module.name, "quantized outputs of linear layers are not supported")
        .Found(fmt::format("{} ({})", DescribeArgs(*group.output_activations), group.where))
        .Id(FindingId("scheme-unsupported"));
  }
  ActivationScheme activations;
  if (!group.input_activations) return activations;
  const Args& args = *group.input_activations;
  activations.type = args.type == Type::kInt ? ActivationType::kInt : ActivationType::kFloat;
  activations.bits = args.num_bits;
  activations.symmetric = args.symmetric;
  // NVFP4 quantizes its inputs at run time, below a global scale that is stored.
  const bool is_local = args.dynamic == Dynamic::kLocal && args.strategy == Strategy::kTensorGroup;
  activations.dynamic = args.dynamic == Dynamic::kYes || is_local;
  switch (args.strategy) {
    case Strategy::kTensor:
      activations.granularity = ActivationGranularity::kTensor;
      return activations;
    case Strategy::kToken:
      activations.granularity = ActivationGranularity::kToken;
      return activations;
    case Strategy::kGroup:
    case Strategy::kTensorGroup:
      activations.granularity = ActivationGranularity::kGroup;
      activations.group_size = args.group_size;
      if (activations.dynamic) return activations;
      break;
    default:
      break;
  }
  return Unsupported(module.name, "this quantization of activations is not supported")
      .Found(fmt::format("{} ({})", DescribeArgs(args), group.where))
      .Expected("per tensor, per token, or dynamic per group")
      .Id(FindingId("scheme-unsupported"));
}

CodeType CodeTypeFor(Storage storage, const Args& weights) {
  if (IsFloat4(storage)) return CodeType::kF4E2M1;
  if (IsFloat(storage)) return CodeType::kF8E4M3;
  // Bytes of 8 bits without a zero point stay as they are.
  const bool signed_bytes = storage == Storage::kInt8 && weights.num_bits == 8 && weights.symmetric;
  return signed_bytes ? CodeType::kS8 : UnsignedCodeFor(weights.num_bits);
}

// Legacy presets changed their meaning: W8A16 had one scale per channel before 0.16. Where the
// group is only known by such a name, the shape of the scales tells.
bool IsChannelOfPreset(const Module& module, const Group& group, const MatrixShape& shape) {
  return group.preset && group.weights->group_size != shape.k && module.scale != nullptr &&
         module.scale->shape == WithExperts(shape, {shape.n, 1});
}

Status SetGranularity(const Module& module, const Group& group, Storage storage,
                      const MatrixShape& shape, Scheme& scheme) {
  const Args& weights = *group.weights;
  scheme.group_size = shape.k;
  switch (weights.strategy) {
    case Strategy::kTensor:
      scheme.granularity = Granularity::kTensor;
      scheme.scale_rows = shape.n;
      return {};
    case Strategy::kChannel:
      scheme.granularity = Granularity::kChannel;
      return {};
    case Strategy::kBlock:
      scheme.granularity = Granularity::kBlock;
      scheme.scale_rows = weights.block[0];
      scheme.group_size = weights.block[1];
      return {};
    case Strategy::kGroup:
      break;
    case Strategy::kTensorGroup:
      if (storage == Storage::kNvfp4) break;
      [[fallthrough]];
    default:
      return Unsupported(module.name, fmt::format("weights with strategy {} are not supported",
                                                  StrategyName(weights.strategy)))
          .Found(fmt::format("{} ({})", DescribeArgs(weights), group.where))
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

// The formats that are named after their groups have no others. Scales in e5m3 lie in bytes, as
// exponents do, and mean something else.
Status CheckGroupOfFormat(const Module& module, const Group& group, Storage storage) {
  if (group.format == kCtNvfp4E5m3) {
    return Unsupported(module.name, "NVFP4 with scales in e5m3 is not supported")
        .Found(fmt::format("format {} ({})", group.format, group.where))
        .Hint("Quantize the float model to NVFP4, MXFP4, FP8 or integers")
        .Id(FindingId("storage-unsupported"));
  }
  if (!IsFloat4(storage) && storage != Storage::kMxfp8) return {};
  const uint64_t size = storage == Storage::kNvfp4 ? kNvfp4Group : kMxGroup;
  if (group.weights->group_size == size) return {};
  return Unsupported(module.name,
                     fmt::format("{} with other groups is not supported", StorageName(storage)))
      .Found(fmt::format("{} ({})", DescribeArgs(*group.weights), group.where))
      .Expected(fmt::format("one scale per {} input channels", size))
      .Id(FindingId("scheme-unsupported"));
}

}  // namespace

Status CheckGroup(const Module& module, const Group& group, Storage storage) {
  const auto contradict = [&](std::string_view what) {
    return Malformed(module.name,
                     fmt::format("the module is stored {}, but {}", StorageName(storage), what))
        .Found(group.where)
        .Id(FindingId("module-scheme-contradiction"));
  };
  if (!group.weights) return contradict("its config group does not quantize weights");
  const bool is_float = group.weights->type == Type::kFloat;
  const uint32_t float_bits = IsFloat4(storage) ? 4 : 8;
  if (is_float != IsFloat(storage) || (is_float && group.weights->num_bits != float_bits)) {
    return contradict(fmt::format("its config group says {}", DescribeArgs(*group.weights)));
  }
  return CheckGroupOfFormat(module, group, storage);
}

Result<Scheme> MakeScheme(const Module& module, const Group& group, Storage storage,
                          const MatrixShape& shape) {
  const Args& weights = *group.weights;
  Scheme scheme;
  scheme.code = CodeTypeFor(storage, weights);
  scheme.bits = weights.num_bits;
  scheme.symmetric = weights.symmetric;
  PREPACK_TRY(SetGranularity(module, group, storage, shape, scheme));
  PREPACK_TRY_ASSIGN(ActivationScheme activations, MakeActivations(module, group));
  scheme.activations = activations;
  return scheme;
}

namespace {

// A module on its way to a RowModule. The steps are called in the order in which they stand here.
class Description {
 public:
  Description(const Checkpoint& checkpoint, const Module& module, const Group& group,
              Storage storage, const Config& config, FindingTally& findings)
      : checkpoint_(checkpoint),
        module_(module),
        group_(group),
        storage_(storage),
        config_(config),
        findings_(findings) {}

  Status CheckGroup();
  Status FindShape();
  Status FindScheme();
  Status FindGlobalScale();
  Status FindZeroPoints();
  Status FindOrder();
  Status FindInput();
  Status CheckOthers();
  std::vector<std::unique_ptr<QuantizedLinear>> Finish();

 private:
  Status FindPackedZeroPoints();
  Status MissingZeroPoints();
  bool HasPaddedColumns(std::span<const uint64_t> expected) const;
  const StoredTensor& Weight() const {
    return module_.packed != nullptr ? *module_.packed : *module_.weight;
  }

  const Checkpoint& checkpoint_;
  const Module& module_;
  const Group& group_;
  const Storage storage_;
  const Config& config_;
  FindingTally& findings_;
  MatrixShape shape_;
  RowModule parts_;
};

Status Description::CheckGroup() {
  PREPACK_TRY(ct::CheckGroup(module_, group_, storage_));
  if (module_.scale == nullptr) {
    return Malformed(checkpoint_.Where(Weight()), "weight_scale of the module is missing")
        .Hint("A shard is missing, or the index is wrong")
        .Id(FindingId("tensor-missing"));
  }
  if (module_.scale_inv != nullptr && module_.scale != module_.scale_inv) {
    return Malformed(checkpoint_.Where(*module_.scale_inv),
                     "the module has both weight_scale and weight_scale_inv")
        .Hint("Only one of them can be the scale; save the model again")
        .Id(FindingId("weight-twice"));
  }
  if (module_.scale_inv != nullptr) {
    findings_.Add("scale-foreign-name", module_.name,
                  "the scale is called weight_scale_inv, as in quant_method fp8, but it is a "
                  "factor all the same");
  }
  const std::string& format = group_.format;
  const bool naive = format == kCtNaiveQuantized && storage_ != Storage::kPackQuantized;
  if (format != StorageName(storage_) && !naive) {
    findings_.Add("module-format-mismatch", module_.name,
                  fmt::format("the config says format {}, the tensors are {}", format,
                              StorageName(storage_)));
  }
  return {};
}

Status Description::FindShape() {
  if (storage_ == Storage::kPackQuantized) {
    PREPACK_TRY_ASSIGN(const PackedShape found,
                       FindPackedShape(checkpoint_, module_, *group_.weights, config_, findings_));
    shape_ = found.shape;
    parts_.stored = found.packing;
  } else {
    const TensorShape& dims = Weight().shape;
    shape_ = {.n = dims[dims.size() - 2], .k = dims.back(), .experts = std::nullopt};
    if (dims.size() == 3) shape_.experts = dims[0];
    parts_.stored = RowCodes::kBytes;
    if (IsFloat4(storage_)) {
      parts_.stored = RowCodes::kNibbles;
      shape_.k *= 2;  // the bytes of an open tensor are far from 2^63
    }
  }
  // Each expert becomes a module of its own; real models have some hundreds.
  constexpr uint64_t kMaxExperts = 8192;
  if (shape_.experts.value_or(1) > kMaxExperts) {
    return Unsupported(checkpoint_.Where(Weight()), "too many stacked experts")
        .Found(ShowShape(Weight().shape))
        .Expected(fmt::format("at most {}", kMaxExperts))
        .Id(FindingId("storage-unsupported"));
  }
  if (shape_.n != 0 && shape_.k != 0 && shape_.experts != uint64_t{0}) {
    return RefuseInputsFirst(checkpoint_, module_.name, Weight(), shape_.n, shape_.k);
  }
  return Malformed(checkpoint_.Where(Weight()), "the weight is empty")
      .Found(ShowShape(Weight().shape))
      .Id(FindingId("tensor-shape"));
}

Status Description::FindScheme() {
  PREPACK_TRY_ASSIGN(const Scheme scheme, MakeScheme(module_, group_, storage_, shape_));
  parts_.scheme = scheme;
  if (storage_ == Storage::kMxfp8 || storage_ == Storage::kMxfp4) {
    parts_.scale_form = ScaleForm::kExponent;
  } else if (storage_ == Storage::kNvfp4) {
    parts_.scale_form = ScaleForm::kFloat8;
  }
  PREPACK_TRY(CheckScaleTensor(checkpoint_, *module_.scale, shape_, scheme, parts_.scale_form));
  return FindGlobalScale();
}

// Only NVFP4 has one, which divides.
Status Description::FindGlobalScale() {
  if (storage_ != Storage::kNvfp4) {
    if (module_.global_scale == nullptr) return {};
    return Malformed(checkpoint_.Where(*module_.global_scale),
                     fmt::format("{} weights have no global scale", StorageName(storage_)))
        .Id(FindingId("module-scheme-contradiction"));
  }
  if (module_.global_scale == nullptr) {
    return Malformed(checkpoint_.Where(Weight()), "weight_global_scale of the module is missing")
        .Hint("A shard is missing, or the index is wrong")
        .Id(FindingId("tensor-missing"));
  }
  if (shape_.experts) {
    return Unsupported(checkpoint_.Where(Weight()), "stacked experts in NVFP4 are not supported")
        .Found(ShowShape(Weight().shape))
        .Hint("Save the model again with one linear layer per expert")
        .Id(FindingId("storage-unsupported"));
  }
  PREPACK_TRY_ASSIGN(parts_.global_scale,
                     ReadGlobalScale(checkpoint_, *module_.global_scale, true));
  parts_.global_scale_tensor = module_.global_scale;
  return {};
}

Status Description::MissingZeroPoints() {
  if (parts_.scheme.symmetric) return {};
  if (config_.version && !(*config_.version < kCtZeroPointsAlwaysStored)) {
    return Malformed(module_.name, "weight_zero_point is missing, but the scheme is asymmetric")
        .Hint("A shard is missing, or the config is wrong")
        .Id(FindingId("tensor-missing"));
  }
  findings_.Add("zero-point-recovered", module_.name,
                "an asymmetric module has no weight_zero_point; prepack reads it as all zeros, as "
                "compressed-tensors before 0.9.3 stored it");
  return {};
}

bool Description::HasPaddedColumns(std::span<const uint64_t> expected) const {
  const TensorShape& found = module_.zero_point->shape;
  if (!config_.version || *config_.version < kCtPaddedZeroPointsFrom ||
      !(*config_.version < kCtPaddedZeroPointsUntil) || found.size() != expected.size()) {
    return false;
  }
  return std::equal(found.begin(), found.end() - 1, expected.begin()) &&
         found.back() > expected.back();
}

Status Description::FindPackedZeroPoints() {
  const StoredTensor& zero_point = *module_.zero_point;
  const uint64_t groups = CeilDiv(shape_.k, parts_.scheme.group_size);
  const std::vector<uint64_t> expected =
      WithExperts(shape_, {RowWords(parts_.stored, parts_.scheme.bits, shape_.n), groups});
  parts_.zero_points = RowZeroPoints::kPacked;
  parts_.zero_point_columns = groups;
  if (HasPaddedColumns(expected)) {
    parts_.zero_point_columns = zero_point.shape.back();
    findings_.Add("zero-point-padded", module_.name,
                  "the packed zero points have columns after the last group, as compressed-tensors "
                  "0.9.4 to 0.10.2 wrote them; prepack ignores them");
    return {};
  }
  return RequireShape(checkpoint_, zero_point, expected, "packed down the rows, one per group");
}

Status Description::FindZeroPoints() {
  parts_.zero_point = module_.zero_point;
  if (module_.zero_point == nullptr) return MissingZeroPoints();
  const StoredTensor& zero_point = *module_.zero_point;
  if (IsFloat(storage_)) {
    return Malformed(checkpoint_.Where(zero_point), fmt::format("{} weights have no zero points",
                                                                IsFloat4(storage_) ? "FP4" : "FP8"))
        .Id(FindingId("module-scheme-contradiction"));
  }
  if (parts_.scheme.symmetric) {
    findings_.Add(
        "zero-point-leftover", module_.name,
        "a symmetric module has weight_zero_point; prepack accepts it if all zero points are zero");
  }
  const bool packed = zero_point.dtype == DType::kI32 && storage_ == Storage::kPackQuantized &&
                      parts_.scheme.granularity != Granularity::kTensor;
  if (packed) return FindPackedZeroPoints();
  if (storage_ == Storage::kPackQuantized && zero_point.dtype != DType::kI8) {
    return RequireDType(checkpoint_, zero_point, "the zero points", {DType::kI32, DType::kI8});
  }
  PREPACK_TRY(RequireDType(checkpoint_, zero_point, "the zero points", {DType::kI8}));
  parts_.zero_points = RowZeroPoints::kUnpacked;
  const auto shapes = ScaleShapes(shape_, parts_.scheme);
  if (std::ranges::find(shapes, zero_point.shape) != shapes.end()) return {};
  return RequireShape(checkpoint_, zero_point, shapes.front(), "one per scale");
}

Status Description::FindOrder() {
  if (module_.g_idx == nullptr) {
    if (group_.weights->actorder == ActOrder::kGroup) {
      findings_.Add("order-missing", module_.name,
                    "the config declares act-order, but weight_g_idx is missing; prepack uses the "
                    "natural order");
    }
    return {};
  }
  if (shape_.experts || IsFloat4(storage_)) {
    return Unsupported(checkpoint_.Where(*module_.g_idx),
                       fmt::format("act-order of {} is not supported",
                                   shape_.experts ? "stacked experts" : "FP4 weights"))
        .Id(FindingId("scheme-unsupported"));
  }
  PREPACK_TRY_ASSIGN(const GroupOrder order,
                     ReadGroupOrder(checkpoint_, module_.g_idx, shape_.k, parts_.scheme.group_size,
                                    GroupDialect::kCompressedTensors));
  if (order.kind != GroupOrder::Kind::kScattered) {
    findings_.Add("order-unneeded", module_.name, "the group index keeps the natural order");
  } else {
    parts_.order = module_.g_idx;
    findings_.Add("order-present", module_.name,
                  "the groups contain reordered input channels, so x must be reordered too");
  }
  if (parts_.order != nullptr && group_.weights->actorder != ActOrder::kGroup) {
    findings_.Add(
        "order-undeclared", module_.name,
        "weight_g_idx scatters the groups, but the config does not declare actorder group");
  }
  parts_.side_tensors.push_back(module_.g_idx);
  return {};
}

Status Description::FindInput() {
  const ActivationScheme& activations = parts_.scheme.activations;
  const auto find = [&](std::string_view suffix) -> const StoredTensor* {
    const auto it = std::ranges::find_if(module_.others, [&](const StoredTensor* tensor) {
      return module_.SuffixOf(*tensor) == suffix;
    });
    return it == module_.others.end() ? nullptr : *it;
  };
  const std::array stored = {find("input_scale"), find("input_zero_point"),
                             find("input_global_scale")};
  for (const StoredTensor* tensor : stored) {
    if (tensor == nullptr) continue;
    if (activations.type == ActivationType::kNone) {
      return Malformed(
                 checkpoint_.Where(*tensor),
                 "this tensor belongs to quantized activations, which the config does not mention")
          .Id(FindingId("module-scheme-contradiction"));
    }
    const bool is_local = group_.input_activations->dynamic == Dynamic::kLocal;
    if (activations.dynamic && !(is_local && tensor == stored[2])) {
      findings_.Add("input-unneeded", tensor->name,
                    "not used: the config says that activations are quantized at run time");
    }
    parts_.side_tensors.push_back(tensor);
  }
  parts_.input_global_scale = FindInputGlobalScale(checkpoint_, stored[2], true);
  if (activations.type == ActivationType::kNone || activations.dynamic) return {};
  if (shape_.experts) {
    return Unsupported(module_.name, "static activations of stacked experts are not supported")
        .Id(FindingId("scheme-unsupported"));
  }
  PREPACK_TRY_ASSIGN(const InputQuantization input,
                     ReadStaticInput(checkpoint_, module_.name, activations, stored[0], stored[1]));
  parts_.input = input;
  return {};
}

// What is stored beside the weight and is not part of its quantization.
Status Description::CheckOthers() {
  // Of the module itself, or of the attention around it: these pass through.
  static constexpr std::array<std::string_view, 8> kPassing = {
      "bias",    "output_scale", "output_zero_point", "k_scale",
      "v_scale", "q_scale",      "k_zero_point",      "v_zero_point"};
  for (const StoredTensor* tensor : module_.others) {
    const std::string_view suffix = module_.SuffixOf(*tensor);
    if (suffix.starts_with("input_") || std::ranges::find(kPassing, suffix) != kPassing.end()) {
      continue;
    }
    findings_.Add("tensor-unknown", tensor->name,
                  "unknown tensor of a quantized module; prepack copies it");
  }
  return {};
}

std::vector<std::unique_ptr<QuantizedLinear>> Description::Finish() {
  parts_.n = shape_.n;
  parts_.k = shape_.k;
  parts_.codes = &Weight();
  parts_.scale = module_.scale;
  if (module_.shape != nullptr)
    parts_.side_tensors.insert(parts_.side_tensors.begin(), module_.shape);
  parts_.experts = shape_.experts.value_or(1);
  std::vector<std::unique_ptr<QuantizedLinear>> linears;
  for (uint64_t expert = 0; expert < parts_.experts; ++expert) {
    parts_.expert = expert;
    parts_.module =
        shape_.experts ? fmt::format("{}.{}", module_.name, expert) : std::string(module_.name);
    linears.push_back(std::make_unique<RowLinear>(checkpoint_, parts_));
  }
  return linears;
}

}  // namespace

Result<std::vector<std::unique_ptr<QuantizedLinear>>> DescribeModule(
    const Checkpoint& checkpoint, const Module& module, const Group& group, Storage storage,
    const Config& config, FindingTally& findings) {
  Description description(checkpoint, module, group, storage, config, findings);
  PREPACK_TRY(description.CheckGroup());
  PREPACK_TRY(description.FindShape());
  PREPACK_TRY(description.FindScheme());
  PREPACK_TRY(description.FindZeroPoints());
  PREPACK_TRY(description.FindOrder());
  PREPACK_TRY(description.FindInput());
  PREPACK_TRY(description.CheckOthers());
  return description.Finish();
}

}  // namespace prepack::ct
