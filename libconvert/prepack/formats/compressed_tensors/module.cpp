#include "prepack/formats/compressed_tensors/module.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_tensors.h"

namespace prepack::ct {

namespace {

using Member = const StoredTensor* Module::*;

constexpr std::array<std::pair<std::string_view, Member>, 8> kMemberSuffixes = {{
    {"weight", &Module::weight},
    {"weight_packed", &Module::packed},
    {"weight_scale", &Module::scale},
    {"weight_zero_point", &Module::zero_point},
    {"weight_shape", &Module::shape},
    {"weight_g_idx", &Module::g_idx},
    {"weight_global_scale", &Module::global_scale},
    {"weight_scale_inv", &Module::scale_inv},
}};

Member MemberOf(std::string_view suffix) {
  for (const auto& [known, member] : kMemberSuffixes) {
    if (known == suffix) return member;
  }
  return nullptr;
}

// A tensor that only says how a weight is quantized.
const StoredTensor* FirstQuantizationTensor(const Module& module) {
  for (const StoredTensor* tensor :
       {module.scale, module.zero_point, module.shape, module.g_idx, module.global_scale}) {
    if (tensor != nullptr) return tensor;
  }
  return nullptr;
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

bool IsExponent(DType dtype) {
  return dtype == DType::kU8 || dtype == DType::kF8E8M0;
}

Status RefuseFormat(const Checkpoint& checkpoint, const StoredTensor& tensor,
                    std::string_view format) {
  return Unsupported(checkpoint.Where(tensor), fmt::format("{} weights are not supported", format))
      .Found(fmt::format("{} {}", DTypeName(tensor.dtype), ShowShape(tensor.shape)))
      .Expected(
          "integers (weight_packed I32, weight I8), FP8 (weight F8_E4M3) or FP4 (weight_packed U8)")
      .Hint("Quantize the float model to such a scheme, for example W4A16, W8A8 or FP8_DYNAMIC")
      .Id(FindingId("storage-unsupported"));
}

// Storage that shows by tensors which no other format has.
Status RefuseForeignTensors(const Checkpoint& checkpoint, const Module& module) {
  for (const StoredTensor* tensor : module.others) {
    const std::string_view suffix = module.SuffixOf(*tensor);
    if (suffix == "bitmask") return RefuseFormat(checkpoint, *tensor, "sparse-bitmask");
    if (suffix == "scale_packed") return RefuseFormat(checkpoint, *tensor, "marlin-24");
    // Fused experts of some writers: "gate_up_proj_packed". Passing them through as if they were
    // not quantized would hand on bytes that nobody can read.
    if (suffix.ends_with("_packed")) {
      return Unsupported(checkpoint.Where(*tensor), "packed weights under an unknown name")
          .Found(fmt::format("{} {}", DTypeName(tensor->dtype), ShowShape(tensor->shape)))
          .Expected("weight_packed, one matrix per expert")
          .Hint("Save the model again with one linear layer per expert")
          .Id(FindingId("storage-unsupported"));
    }
  }
  return {};
}

// One matrix, or one per expert.
Status RequireMatrix(const Checkpoint& checkpoint, const StoredTensor& weight,
                     std::string_view expected) {
  if (weight.shape.size() == 2 || weight.shape.size() == 3) return {};
  return Malformed(checkpoint.Where(weight), "the weight has the wrong rank")
      .Found(ShowShape(weight.shape))
      .Expected(expected)
      .Id(FindingId("tensor-shape"));
}

Result<Storage> ClassifyPacked(const Checkpoint& checkpoint, const Module& module) {
  const StoredTensor& packed = *module.packed;
  if (module.weight != nullptr) {
    return Malformed(checkpoint.Where(packed), "the module has both weight and weight_packed")
        .Hint("Only one of them can be the weight; save the model again")
        .Id(FindingId("weight-twice"));
  }
  if (packed.dtype == DType::kU8) {
    PREPACK_TRY(RequireMatrix(checkpoint, packed, "[N, K/2]"));
    const bool nvfp4 =
        module.scale != nullptr ? !IsExponent(module.scale->dtype) : module.global_scale != nullptr;
    return nvfp4 ? Storage::kNvfp4 : Storage::kMxfp4;
  }
  if (packed.dtype != DType::kI32) {
    return Malformed(checkpoint.Where(packed), "packed weights have the wrong dtype")
        .Found(DTypeName(packed.dtype))
        .Expected("I32")
        .Id(FindingId("tensor-dtype"));
  }
  PREPACK_TRY(RequireMatrix(checkpoint, packed, "[N, words]"));
  if (module.global_scale != nullptr) {
    return Malformed(checkpoint.Where(*module.global_scale), "integer weights have no global scale")
        .Id(FindingId("module-scheme-contradiction"));
  }
  return Storage::kPackQuantized;
}

Result<Storage> ClassifyUnpacked(const Checkpoint& checkpoint, const Module& module) {
  const StoredTensor& weight = *module.weight;
  const StoredTensor* orphan = FirstQuantizationTensor(module);
  const bool is_float8 = weight.dtype == DType::kF8E4M3;
  if (module.scale == nullptr) {
    if (weight.dtype == DType::kI8 || is_float8) {
      return Malformed(checkpoint.Where(weight), "the quantized weight has no weight_scale")
          .Found(DTypeName(weight.dtype))
          .Id(FindingId("tensor-missing"));
    }
    if (orphan == nullptr) return Storage::kPlain;
    return Malformed(checkpoint.Where(*orphan),
                     "the tensor describes a quantized weight, but the weight is not quantized")
        .Found(fmt::format("weight {}", DTypeName(weight.dtype)))
        .Id(FindingId("tensor-orphan"));
  }
  if (weight.dtype == DType::kI8 || is_float8) {
    PREPACK_TRY(RequireMatrix(checkpoint, weight, "[N, K]"));
    if (!is_float8) return Storage::kInt8;
    return IsExponent(module.scale->dtype) ? Storage::kMxfp8 : Storage::kFloat8;
  }
  if (weight.dtype == DType::kI32) {
    return RefuseFormat(checkpoint, weight, "packed (compressed-tensors before 0.4)");
  }
  if (IsFloat(weight.dtype)) {
    return Unsupported(checkpoint.Where(weight),
                       "the weight is fake-quantized: stored in floating point, with scales")
        .Found(fmt::format("weight {} and weight_scale", DTypeName(weight.dtype)))
        .Expected("weight_packed")
        .Hint("Save the model again compressed (save_compressed=True)")
        .Id(FindingId("weight-fake-quantized"));
  }
  return RefuseFormat(checkpoint, weight, fmt::format("quantized {}", DTypeName(weight.dtype)));
}

}  // namespace

std::string_view Module::SuffixOf(const StoredTensor& tensor) const {
  const std::string_view full = tensor.name;
  return name.empty() ? full : full.substr(name.size() + 1);
}

Module SortTensors(const ModuleTensors& group) {
  Module module;
  module.name = group.name;
  for (const auto& [suffix, tensor] : group.tensors) {
    if (const Member member = MemberOf(suffix)) {
      module.*member = tensor;
    } else {
      module.others.push_back(tensor);
    }
  }
  // The name is that of another format, but the numbers multiply like any scale. Who stores both
  // means something else by it.
  if (module.scale == nullptr) module.scale = module.scale_inv;
  return module;
}

std::string_view StorageName(Storage storage) {
  switch (storage) {
    case Storage::kPlain:
      return "dense";
    case Storage::kPackQuantized:
      return "pack-quantized";
    case Storage::kInt8:
      return "int-quantized";
    case Storage::kFloat8:
      return kCtFloatQuantized;
    case Storage::kMxfp8:
      return kCtMxfp8;
    case Storage::kMxfp4:
      return kCtMxfp4;
    case Storage::kNvfp4:
      return kCtNvfp4;
  }
  return "";
}

Result<Storage> ClassifyModule(const Checkpoint& checkpoint, const Module& module) {
  PREPACK_TRY(RefuseForeignTensors(checkpoint, module));
  if (module.packed != nullptr) return ClassifyPacked(checkpoint, module);
  if (module.weight != nullptr) return ClassifyUnpacked(checkpoint, module);
  const StoredTensor* orphan = FirstQuantizationTensor(module);
  if (orphan == nullptr) return Storage::kPlain;
  return Malformed(checkpoint.Where(*orphan), "the weight that this tensor describes is missing")
      .Expected(fmt::format("{}.weight_packed", module.name))
      .Hint("A shard is missing, or the index is wrong")
      .Id(FindingId("tensor-orphan"));
}

namespace {

// N, or E and N, of weight_packed: all dimensions but the last.
MatrixShape ShapeOfRows(const StoredTensor& packed) {
  MatrixShape shape;
  if (packed.shape.size() == 3) shape.experts = packed.shape[0];
  shape.n = packed.shape[packed.shape.size() - 2];
  return shape;
}

bool HasTwoPackings(uint32_t bits) {
  return 32 % bits != 0;
}

bool FitsEither(const Args& weights, uint64_t k, uint64_t words) {
  return RowWords(RowCodes::kDense, weights.num_bits, k) == words ||
         RowWords(RowCodes::kWordAligned, weights.num_bits, k) == words;
}

// K as weight_shape says, checked against weight_packed.
Result<uint64_t> ReadStoredK(const Checkpoint& checkpoint, const Module& module,
                             const Args& weights, const MatrixShape& rows) {
  const StoredTensor& stored = *module.shape;
  Status status =
      RequireDType(checkpoint, stored, "the numbers of weight_shape", {DType::kI64, DType::kI32});
  if (!status.ok()) return status;
  const size_t rank = module.packed->shape.size();
  if (stored.shape.size() != 1 || stored.shape[0] != rank) {
    return Malformed(checkpoint.Where(stored), "weight_shape has the wrong shape")
        .Found(ShowShape(stored.shape))
        .Expected(fmt::format("[{}]", rank))
        .Id(FindingId("tensor-shape"));
  }
  const size_t each = DTypeBits(stored.dtype) / 8;
  std::array<std::byte, 24> buffer{};
  const auto bytes = std::span(buffer).first(rank * each);
  status = checkpoint.Read(stored, 0, bytes);
  if (!status.ok()) return status;
  std::vector<int64_t> dims;
  for (size_t i = 0; i < rank; ++i) dims.push_back(LoadLittleInt(bytes.subspan(i * each, each)));
  const int64_t k = dims.back();
  const uint64_t words = module.packed->shape.back();
  const bool rows_agree = static_cast<uint64_t>(dims[rank - 2]) == rows.n &&
                          (!rows.experts || static_cast<uint64_t>(dims[0]) == *rows.experts);
  if (rows_agree && k > 0 && FitsEither(weights, static_cast<uint64_t>(k), words)) {
    return static_cast<uint64_t>(k);
  }
  return Malformed(checkpoint.Where(stored), "weight_shape contradicts weight_packed")
      .Found(fmt::format("[{}]", fmt::join(dims, ", ")))
      .Expected(fmt::format("[{}, K] with K in {} words of {}-bit codes", rows.n, words,
                            weights.num_bits))
      .Id(FindingId("tensor-shape"));
}

// K where weight_shape is missing (or empty, as some tools leave it): G · group size.
Result<uint64_t> RecoverK(const Checkpoint& checkpoint, const Module& module, const Args& weights,
                          FindingTally& findings) {
  const uint64_t words = module.packed->shape.back();
  std::optional<uint64_t> k;
  const TensorShape& scale = module.scale->shape;
  if (weights.strategy == Strategy::kGroup && !scale.empty()) {
    k = CheckedMul(scale.back(), weights.group_size);
  }
  if (!k || *k == 0 || HasTwoPackings(weights.num_bits) || !FitsEither(weights, *k, words)) {
    return Malformed(checkpoint.Where(*module.packed),
                     "weight_shape is missing, and the other tensors do not determine K")
        .Found(fmt::format("{} words per row, weight_scale {}", words, ShowShape(scale)))
        .Hint("Save the model again; a channel-wise scale does not tell how many codes are padding")
        .Id(FindingId("weight-shape-missing"));
  }
  findings.Add("shape-recovered", module.name,
               "weight_shape is missing; prepack derived K from the groups and the group size");
  return *k;
}

Result<RowCodes> FindPacking(const Checkpoint& checkpoint, const Module& module, uint32_t bits,
                             uint64_t k, const std::optional<Version>& version) {
  if (!HasTwoPackings(bits)) return RowCodes::kDense;
  const uint64_t words = module.packed->shape.back();
  const bool dense = RowWords(RowCodes::kDense, bits, k) == words;
  const bool aligned = RowWords(RowCodes::kWordAligned, bits, k) == words;
  const auto refuse = [&](std::string_view what, std::string_view hint) {
    return Malformed(checkpoint.Where(*module.packed), what)
        .Found(fmt::format(
            "{} words for {} codes of {} bits, {}", words, k, bits,
            version ? fmt::format("version {}", fmt::join(version->parts, ".")) : "no version"))
        .Expected(fmt::format("{} words since compressed-tensors 0.18.0, {} before",
                              RowWords(RowCodes::kDense, bits, k),
                              RowWords(RowCodes::kWordAligned, bits, k)))
        .Hint(hint)
        .Id(FindingId("packing-undecidable"));
  };
  if (!version) {
    if (dense != aligned) return dense ? RowCodes::kDense : RowCodes::kWordAligned;
    return refuse("it is not clear which of the two packings the codes have",
                  "Put the compressed-tensors version that wrote the model into the config");
  }
  const bool dense_by_version = !(*version < kCtDenseSince);
  if (dense_by_version ? dense : aligned) {
    return dense_by_version ? RowCodes::kDense : RowCodes::kWordAligned;
  }
  return refuse("the version contradicts the number of words",
                "A tool may have changed the version; set it to the version that wrote the model");
}

}  // namespace

Result<PackedShape> FindPackedShape(const Checkpoint& checkpoint, const Module& module,
                                    const Args& weights, const Config& config,
                                    FindingTally& findings) {
  PackedShape found;
  found.shape = ShapeOfRows(*module.packed);
  const bool stored = module.shape != nullptr && module.shape->bytes > 0;
  PREPACK_TRY_ASSIGN(const uint64_t k, stored
                                           ? ReadStoredK(checkpoint, module, weights, found.shape)
                                           : RecoverK(checkpoint, module, weights, findings));
  found.shape.k = k;
  PREPACK_TRY_ASSIGN(const RowCodes packing,
                     FindPacking(checkpoint, module, weights.num_bits, k, config.version));
  found.packing = packing;
  return found;
}

}  // namespace prepack::ct
