#include "formats/compressed_tensors_module.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>
#include <utility>

#include "formats/finding.h"

namespace prepack {

namespace {

using Member = const StoredTensor* CtModule::*;

constexpr std::array<std::pair<std::string_view, Member>, 8> kMemberSuffixes = {{
    {"weight", &CtModule::weight},
    {"weight_packed", &CtModule::packed},
    {"weight_scale", &CtModule::scale},
    {"weight_zero_point", &CtModule::zero_point},
    {"weight_shape", &CtModule::shape},
    {"weight_g_idx", &CtModule::g_idx},
    {"weight_global_scale", &CtModule::global_scale},
    {"weight_scale_inv", &CtModule::scale_inv},
}};

Member MemberOf(std::string_view suffix) {
  for (const auto& [known, member] : kMemberSuffixes) {
    if (known == suffix) return member;
  }
  return nullptr;
}

// A tensor that only says how a weight is quantized.
const StoredTensor* FirstQuantizationTensor(const CtModule& module) {
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

Status RefuseFormat(const Checkpoint& checkpoint, const StoredTensor& tensor,
                    std::string_view format) {
  return Unsupported(checkpoint.Where(tensor), fmt::format("{} weights are not read", format))
      .Found(fmt::format("{} {}", DTypeName(tensor.dtype), ShowShape(tensor.shape)))
      .Expected("integers (weight_packed I32, weight I8) or FP8 (weight F8_E4M3)")
      .Hint("Quantize the float model to such a scheme, for example W4A16, W8A8 or FP8_DYNAMIC")
      .Id(FindingId("storage-unsupported"));
}

// Storage that shows by tensors which no other format has.
Status RefuseForeignTensors(const Checkpoint& checkpoint, const CtModule& module) {
  for (const StoredTensor* tensor : module.others) {
    const std::string_view suffix = module.SuffixOf(*tensor);
    if (suffix == "bitmask") return RefuseFormat(checkpoint, *tensor, "sparse-bitmask");
    if (suffix == "scale_packed") return RefuseFormat(checkpoint, *tensor, "marlin-24");
    // Fused experts of some writers: "gate_up_proj_packed". Passing them through as if they were
    // not quantized would hand on bytes that nobody can read.
    if (suffix.ends_with("_packed")) {
      return Unsupported(checkpoint.Where(*tensor), "packed weights under a name that is not known")
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

Result<CtStorage> ClassifyPacked(const Checkpoint& checkpoint, const CtModule& module) {
  const StoredTensor& packed = *module.packed;
  if (module.weight != nullptr) {
    return Malformed(checkpoint.Where(packed), "the module has both weight and weight_packed")
        .Hint("Only one of them can be the weight; save the model again")
        .Id(FindingId("weight-twice"));
  }
  if (packed.dtype == DType::kU8) {
    return RefuseFormat(
        checkpoint, packed,
        module.global_scale != nullptr ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized");
  }
  if (packed.dtype != DType::kI32) {
    return Malformed(checkpoint.Where(packed), "packed weights have the wrong dtype")
        .Found(DTypeName(packed.dtype))
        .Expected("I32")
        .Id(FindingId("tensor-dtype"));
  }
  Status rank = RequireMatrix(checkpoint, packed, "[N, words]");
  if (!rank.ok()) return rank;
  if (module.global_scale != nullptr) {
    return Malformed(checkpoint.Where(*module.global_scale), "integer weights have no global scale")
        .Id(FindingId("module-scheme-contradiction"));
  }
  return CtStorage::kPackQuantized;
}

Result<CtStorage> ClassifyUnpacked(const Checkpoint& checkpoint, const CtModule& module) {
  const StoredTensor& weight = *module.weight;
  const StoredTensor* orphan = FirstQuantizationTensor(module);
  const bool is_float8 = weight.dtype == DType::kF8E4M3;
  if (module.scale == nullptr) {
    if (weight.dtype == DType::kI8 || is_float8) {
      return Malformed(checkpoint.Where(weight), "a quantized weight without weight_scale")
          .Found(DTypeName(weight.dtype))
          .Id(FindingId("tensor-missing"));
    }
    if (orphan == nullptr) return CtStorage::kPlain;
    return Malformed(checkpoint.Where(*orphan),
                     "the tensor describes a quantized weight, but the weight is not quantized")
        .Found(fmt::format("weight {}", DTypeName(weight.dtype)))
        .Id(FindingId("tensor-orphan"));
  }
  if (is_float8 && (module.scale->dtype == DType::kU8 || module.scale->dtype == DType::kF8E8M0)) {
    return RefuseFormat(checkpoint, weight, "mxfp8-quantized");
  }
  if (weight.dtype == DType::kI8 || is_float8) {
    Status rank = RequireMatrix(checkpoint, weight, "[N, K]");
    if (!rank.ok()) return rank;
    return is_float8 ? CtStorage::kFloat8 : CtStorage::kInt8;
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

std::string_view CtModule::SuffixOf(const StoredTensor& tensor) const {
  const std::string_view full = tensor.name;
  return name.empty() ? full : full.substr(name.size() + 1);
}

std::vector<CtModule> GroupCtModules(const Checkpoint& checkpoint) {
  std::vector<CtModule> modules;
  for (const ModuleTensors& group : GroupByModule(checkpoint)) {
    CtModule& module = modules.emplace_back();
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
  }
  return modules;
}

std::string_view CtStorageName(CtStorage storage) {
  switch (storage) {
    case CtStorage::kPlain:
      return "dense";
    case CtStorage::kPackQuantized:
      return "pack-quantized";
    case CtStorage::kInt8:
      return "int-quantized";
    case CtStorage::kFloat8:
      return "float-quantized";
  }
  return "";
}

Result<CtStorage> ClassifyCtModule(const Checkpoint& checkpoint, const CtModule& module) {
  Status foreign = RefuseForeignTensors(checkpoint, module);
  if (!foreign.ok()) return foreign;
  if (module.packed != nullptr) return ClassifyPacked(checkpoint, module);
  if (module.weight != nullptr) return ClassifyUnpacked(checkpoint, module);
  const StoredTensor* orphan = FirstQuantizationTensor(module);
  if (orphan == nullptr) return CtStorage::kPlain;
  return Malformed(checkpoint.Where(*orphan), "the weight that this tensor describes is missing")
      .Expected(fmt::format("{}.weight_packed", module.name))
      .Hint("A shard is missing, or the index is wrong")
      .Id(FindingId("tensor-orphan"));
}

}  // namespace prepack
