#include "formats/compressed_tensors_pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "formats/compressed_tensors_linear.h"

namespace prepack {

namespace {

constexpr uint32_t kBits = 4;
constexpr uint64_t kCodesPerWord = 8;
// From this release on, an asymmetric module always has its zero points; before, all-zero ones
// were dropped.
constexpr CtVersion kZeroPointsAlwaysStored = {{0, 9, 3}};

// That the group means 4-bit integer weights, alone, with a scale per group or channel.
Status CheckGroup(const CtModule& module, const CtGroup& group) {
  const auto refuse = [&](std::string_view what, const std::string& found) {
    return Unsupported(module.name, what)
        .Found(fmt::format("{} ({})", found, group.where))
        .Expected("4-bit int weights, per group or channel, without activation quantization")
        .Hint("Quantize the model with scheme W4A16 or W4A16_ASYM");
  };
  const auto contradict = [&](std::string_view what) {
    return Malformed(module.name, fmt::format("the module is stored pack-quantized, but {}", what))
        .Found(group.where);
  };
  if (!group.weights) return contradict("its config group does not quantize weights");
  const CtArgs& weights = *group.weights;
  const std::string described = DescribeCtArgs(weights);
  if (weights.type != CtType::kInt) {
    return contradict(fmt::format("its config group says {}", described));
  }
  if (group.input_activations || group.output_activations) {
    const CtArgs& activations =
        group.input_activations ? *group.input_activations : *group.output_activations;
    return refuse("activation quantization with packed weights is not read",
                  DescribeCtArgs(activations) + " activations");
  }
  if (group.format != kCtPackQuantized) {
    return contradict(fmt::format("its config group says format {}", group.format));
  }
  if (weights.num_bits != kBits) {
    return refuse(fmt::format("pack-quantized weights of {} bits are not read", weights.num_bits),
                  described);
  }
  if (weights.strategy != CtStrategy::kGroup && weights.strategy != CtStrategy::kChannel) {
    return refuse(fmt::format("pack-quantized weights with strategy {} are not read",
                              CtStrategyName(weights.strategy)),
                  described);
  }
  return {};
}

Status WrongShape(const Checkpoint& checkpoint, const StoredTensor& tensor,
                  const std::string& expected) {
  return Malformed(checkpoint.Where(tensor), "the shape contradicts that of weight_packed")
      .Found(ShowShape(tensor.shape))
      .Expected(expected);
}

// A little-endian signed integer of 4 or 8 bytes.
int64_t LoadInt(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  }
  return bytes.size() == 4 ? static_cast<int32_t>(static_cast<uint32_t>(value))
                           : static_cast<int64_t>(value);
}

Status CheckIndexDType(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  if (tensor.dtype == DType::kI64 || tensor.dtype == DType::kI32) return {};
  return Malformed(checkpoint.Where(tensor), "the tensor has the wrong dtype")
      .Found(DTypeName(tensor.dtype))
      .Expected("I64 or I32");
}

// K as weight_shape says, checked against weight_packed.
Result<uint64_t> ReadStoredK(const Checkpoint& checkpoint, const CtModule& module) {
  const StoredTensor& shape = *module.shape;
  Status status = CheckIndexDType(checkpoint, shape);
  if (!status.ok()) return status;
  if (shape.shape.size() != 1 || shape.shape[0] != 2) {
    return Malformed(checkpoint.Where(shape), "weight_shape has the wrong shape")
        .Found(ShowShape(shape.shape))
        .Expected("[2]");
  }
  const size_t each = DTypeBits(shape.dtype) / 8;
  std::array<std::byte, 16> buffer{};
  const auto bytes = std::span(buffer).first(2 * each);
  status = checkpoint.Read(shape, 0, bytes);
  if (!status.ok()) return status;
  const int64_t n = LoadInt(bytes.first(each));
  const int64_t k = LoadInt(bytes.last(each));
  const std::vector<uint64_t>& packed = module.packed->shape;
  const bool sound = n > 0 && k > 0 && static_cast<uint64_t>(n) == packed[0] &&
                     CeilDiv(static_cast<uint64_t>(k), kCodesPerWord) == packed[1];
  if (sound) return static_cast<uint64_t>(k);
  return Malformed(checkpoint.Where(shape), "weight_shape contradicts weight_packed")
      .Found(fmt::format("[{}, {}]", n, k))
      .Expected(fmt::format("[{}, K] with K in {} words of 8 codes", packed[0], packed[1]));
}

// K where weight_shape is missing (or empty, as some tools leave it): G · group size.
Result<uint64_t> RecoverK(const Checkpoint& checkpoint, const CtModule& module,
                          const CtArgs& weights, FindingTally& findings) {
  const uint64_t words = module.packed->shape[1];
  std::optional<uint64_t> k;
  if (weights.strategy == CtStrategy::kGroup && module.scale->shape.size() == 2) {
    k = CheckedMul(module.scale->shape[1], weights.group_size);
  }
  if (!k || CeilDiv(*k, kCodesPerWord) != words) {
    return Malformed(checkpoint.Where(*module.packed),
                     "weight_shape is missing, and K does not follow from the other tensors")
        .Found(
            fmt::format("{} words per row, weight_scale {}", words, ShowShape(module.scale->shape)))
        .Hint(
            "Save the model again; a channel-wise scale does not tell how many codes are padding");
  }
  findings.Add("shape-recovered", module.name,
               "weight_shape is missing; K follows from groups and group size");
  return *k;
}

Result<uint64_t> FindK(const Checkpoint& checkpoint, const CtModule& module, const CtArgs& weights,
                       FindingTally& findings) {
  const bool stored = module.shape != nullptr && module.shape->bytes > 0;
  return stored ? ReadStoredK(checkpoint, module) : RecoverK(checkpoint, module, weights, findings);
}

Result<Scheme> MakeScheme(const CtModule& module, const CtArgs& weights, uint64_t k) {
  Scheme scheme;
  scheme.symmetric = weights.symmetric;
  if (weights.strategy == CtStrategy::kChannel) {
    scheme.granularity = Granularity::kChannel;
    scheme.group_size = k;
    return scheme;
  }
  scheme.granularity = Granularity::kGroup;
  scheme.group_size = weights.group_size;
  if (k % weights.group_size == 0) return scheme;
  return Malformed(module.name, "K is not a multiple of the group size")
      .Found(fmt::format("K = {}, group size {}", k, weights.group_size))
      .Hint("No release of compressed-tensors writes a short last group");
}

Status CheckScale(const Checkpoint& checkpoint, const CtModule& module, uint64_t n, uint64_t groups,
                  Granularity granularity) {
  const StoredTensor& scale = *module.scale;
  if (scale.dtype == DType::kF64) {
    return Unsupported(checkpoint.Where(scale), "scales of 64 bits are not read")
        .Found("F64")
        .Expected("BF16, F16 or F32");
  }
  if (scale.dtype != DType::kBF16 && scale.dtype != DType::kF16 && scale.dtype != DType::kF32) {
    return Malformed(checkpoint.Where(scale), "the scales have the wrong dtype")
        .Found(DTypeName(scale.dtype))
        .Expected("BF16, F16 or F32");
  }
  // Some writers leave out the second dimension of a channel-wise scale.
  const bool flat = granularity == Granularity::kChannel && scale.shape == std::vector{n};
  if (flat || scale.shape == std::vector{n, groups}) return {};
  return WrongShape(checkpoint, scale, fmt::format("[{}, {}]", n, groups));
}

Result<CtZeroPoints> CheckZeroPoint(const Checkpoint& checkpoint, const CtModule& module,
                                    const CtConfig& config, bool symmetric, uint64_t n,
                                    uint64_t groups, FindingTally& findings) {
  if (module.zero_point == nullptr) {
    if (symmetric) return CtZeroPoints::kNone;
    if (config.version && !(*config.version < kZeroPointsAlwaysStored)) {
      return Malformed(module.name, "weight_zero_point is missing, but the scheme is asymmetric")
          .Hint("A shard is missing, or the config is wrong");
    }
    findings.Add("zero-point-recovered", module.name,
                 "weight_zero_point is missing in an asymmetric module; read as all zero, as "
                 "compressed-tensors before 0.9.3 stored it");
    return CtZeroPoints::kNone;
  }
  const StoredTensor& zero_point = *module.zero_point;
  if (symmetric) {
    findings.Add("zero-point-leftover", module.name,
                 "weight_zero_point is present in a symmetric module; accepted if all are zero");
  }
  if (zero_point.dtype == DType::kI32) {
    const std::vector expected = {CeilDiv(n, kCodesPerWord), groups};
    if (zero_point.shape == expected) return CtZeroPoints::kPacked;
    return WrongShape(checkpoint, zero_point, ShowShape(expected) + ", packed down the rows");
  }
  if (zero_point.dtype == DType::kI8) {
    const bool flat = groups == 1 && zero_point.shape == std::vector{n};
    if (flat || zero_point.shape == std::vector{n, groups}) return CtZeroPoints::kUnpacked;
    return WrongShape(checkpoint, zero_point, fmt::format("[{}, {}]", n, groups));
  }
  return Malformed(checkpoint.Where(zero_point), "the zero points have the wrong dtype")
      .Found(DTypeName(zero_point.dtype))
      .Expected("I32 (packed) or I8");
}

// Accepts a weight_g_idx that changes nothing: k / group size, or −1 throughout ("never set").
Status CheckGroupIndex(const Checkpoint& checkpoint, const CtModule& module, uint64_t k,
                       uint64_t group_size, FindingTally& findings) {
  const StoredTensor& g_idx = *module.g_idx;
  Status status = CheckIndexDType(checkpoint, g_idx);
  if (!status.ok()) return status;
  if (g_idx.shape != std::vector{k}) {
    return WrongShape(checkpoint, g_idx, fmt::format("[{}]", k));
  }
  const size_t each = DTypeBits(g_idx.dtype) / 8;
  const auto groups = static_cast<int64_t>(k / group_size);
  std::array<std::byte, 4096> buffer{};
  uint64_t unset = 0;
  bool reorders = false;
  for (uint64_t first = 0; first < k;) {
    const uint64_t count = std::min<uint64_t>(k - first, buffer.size() / each);
    const auto bytes = std::span(buffer).first(count * each);
    status = checkpoint.Read(g_idx, first * each, bytes);
    if (!status.ok()) return status;
    for (uint64_t i = 0; i < count; ++i) {
      const int64_t group = LoadInt(bytes.subspan(i * each, each));
      if (group < -1 || group >= groups) {
        return Malformed(checkpoint.Where(g_idx), "a group index is out of range")
            .Found(fmt::format("{} at [{}]", group, first + i))
            .Expected(fmt::format("0 to {}", groups - 1));
      }
      unset += group == -1 ? 1 : 0;
      reorders = reorders || static_cast<uint64_t>(group) != (first + i) / group_size;
    }
    first += count;
  }
  if (unset != 0 && unset != k) {
    return Malformed(checkpoint.Where(g_idx), "only some group indices are set")
        .Found(fmt::format("{} of {} are -1", unset, k));
  }
  if (reorders && unset == 0) {
    return Unsupported(checkpoint.Where(g_idx), "activation order (weight_g_idx) is not read")
        .Hint("Quantize the model with actorder \"static\", which needs no reordering");
  }
  findings.Add("order-unneeded", module.name,
               "weight_g_idx keeps the natural order and is not needed");
  return {};
}

// What is stored beside the weight and does not belong to a weight-only module.
Status CheckOthers(const Checkpoint& checkpoint, const CtModule& module, FindingTally& findings) {
  // Of the module itself, or of the attention around it: these pass through.
  static constexpr std::array<std::string_view, 8> kPassing = {
      "bias",    "output_scale", "output_zero_point", "k_scale",
      "v_scale", "q_scale",      "k_zero_point",      "v_zero_point"};
  static constexpr std::array<std::string_view, 3> kInputs = {"input_scale", "input_zero_point",
                                                              "input_global_scale"};
  for (const StoredTensor* tensor : module.others) {
    const std::string_view suffix = module.SuffixOf(*tensor);
    if (std::find(kInputs.begin(), kInputs.end(), suffix) != kInputs.end()) {
      return Malformed(checkpoint.Where(*tensor),
                       "the config says nothing of quantized activations, but this tensor does");
    }
    if (std::find(kPassing.begin(), kPassing.end(), suffix) == kPassing.end()) {
      findings.Add("tensor-unknown", tensor->name,
                   "unknown tensor of a quantized module; passed through");
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<QuantizedLinear>> DescribePackQuantized(const Checkpoint& checkpoint,
                                                               const CtModule& module,
                                                               const CtGroup& group,
                                                               const CtConfig& config,
                                                               FindingTally& findings) {
  Status status = CheckGroup(module, group);
  if (!status.ok()) return status;
  if (ClassOfModule(module.name) == ModuleClass::kEmbedding) {
    return Unsupported(module.name, "quantized embeddings are not read")
        .Hint("Put the embedding into the ignore list when quantizing");
  }
  if (module.scale == nullptr) {
    return Malformed(checkpoint.Where(*module.packed), "weight_scale of the module is missing")
        .Hint("A shard is missing, or the index is wrong");
  }
  const CtArgs& weights = *group.weights;
  const Result<uint64_t> k = FindK(checkpoint, module, weights, findings);
  if (!k.ok()) return k.status();
  const uint64_t n = module.packed->shape[0];
  if (n == 0 || *k == 0) {
    return Malformed(checkpoint.Where(*module.packed), "the weight is empty")
        .Found(ShowShape(module.packed->shape));
  }
  const Result<Scheme> scheme = MakeScheme(module, weights, *k);
  if (!scheme.ok()) return scheme.status();
  const uint64_t groups = *k / scheme->group_size;
  status = CheckScale(checkpoint, module, n, groups, scheme->granularity);
  if (!status.ok()) return status;
  const Result<CtZeroPoints> zero_points =
      CheckZeroPoint(checkpoint, module, config, weights.symmetric, n, groups, findings);
  if (!zero_points.ok()) return zero_points.status();
  if (module.g_idx != nullptr) {
    status = CheckGroupIndex(checkpoint, module, *k, scheme->group_size, findings);
    if (!status.ok()) return status;
  } else if (weights.actorder == CtActOrder::kGroup) {
    findings.Add("order-missing", module.name,
                 "the config says activation order, but weight_g_idx is missing: natural order");
  }
  status = CheckOthers(checkpoint, module, findings);
  if (!status.ok()) return status;

  CtPackedModule parts;
  parts.module = module.name;
  parts.scheme = *scheme;
  parts.n = n;
  parts.k = *k;
  parts.packed = module.packed;
  parts.scale = module.scale;
  parts.zero_point = module.zero_point;
  parts.zero_points = *zero_points;
  for (const StoredTensor* tensor : {module.shape, module.g_idx}) {
    if (tensor != nullptr) parts.side_tensors.push_back(tensor);
  }
  return std::unique_ptr<QuantizedLinear>(
      std::make_unique<CompressedTensorsLinear>(checkpoint, parts));
}

}  // namespace prepack
