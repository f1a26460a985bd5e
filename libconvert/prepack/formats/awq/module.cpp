#include "prepack/formats/awq/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/awq/linear.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_match.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/kernels/awq.h"

namespace prepack::awq {
namespace {

// True when `a` · `factor` is `b`.
bool Times(uint64_t a, uint64_t factor, uint64_t b) {
  return CheckedMul(a, factor) == b;
}

bool IsScaleDType(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32;
}

// Rows and columns of the three tensors.
struct Shapes {
  explicit Shapes(const Tensors& tensors)
      : words(tensors.qweight->dtype == DType::kI32),
        halves(tensors.qweight->dtype == DType::kI16),
        has_zeros(tensors.qzeros != nullptr),
        zero_words(has_zeros && tensors.qzeros->dtype == DType::kI32),
        zero_floats(has_zeros && IsScaleDType(tensors.qzeros->dtype)),
        rows(tensors.qweight->shape[0]),
        cols(tensors.qweight->shape[1]),
        zero_rows(has_zeros ? tensors.qzeros->shape[0] : 0),
        zero_cols(has_zeros ? tensors.qzeros->shape[1] : 0),
        scale_rows(tensors.scales->shape[0]),
        scale_cols(tensors.scales->shape[1]) {}

  bool words;
  bool halves;
  bool has_zeros;
  bool zero_words;
  bool zero_floats;
  uint64_t rows, cols;
  uint64_t zero_rows, zero_cols;
  uint64_t scale_rows, scale_cols;
};

// No shapes fit two layouts: gemm, GPTQ and marlin differ in qweight's columns per channel, gemv
// has as many rows of codes as of scales, where the others would have groups of 1 or 8 inputs, and
// no writer makes those.
bool Fits(Layout layout, const Shapes& s) {
  const bool grouped_rows = s.rows > s.scale_rows;
  switch (layout) {
    case Layout::kGemm:
      return s.words && grouped_rows && Times(s.cols, kAwqCodesPerWord, s.scale_cols) &&
             (!s.has_zeros ||
              (s.zero_words && s.zero_rows == s.scale_rows && s.zero_cols == s.cols));
    case Layout::kGemv:
      return s.words && s.zero_words && s.rows == s.scale_rows && s.rows == s.zero_rows &&
             Times(s.zero_cols, kAwqCodesPerWord, s.scale_cols);
    case Layout::kGemvFast:
      return s.halves && s.zero_floats && Times(s.rows, 4, s.scale_cols) &&
             s.zero_rows == s.scale_rows && s.zero_cols == s.scale_cols;
    case Layout::kMarlin:
      return s.words && !s.has_zeros && Times(s.scale_cols, 2, s.cols);
    case Layout::kGptq:
      return s.words && grouped_rows && s.cols == s.scale_cols &&
             (!s.has_zeros || (s.zero_words && s.zero_rows == s.scale_rows &&
                               s.zero_cols == CeilDiv(s.cols, kAwqCodesPerWord)));
  }
  return false;
}

}  // namespace

std::string_view LayoutName(Layout layout) {
  static constexpr std::array<std::string_view, 5> kNames = {"gemm", "gemv", "gemv_fast", "marlin",
                                                             "GPTQ"};
  return kNames[static_cast<size_t>(layout)];
}

std::optional<uint64_t> PaddedAwqGroups(uint64_t k, uint64_t group_size) {
  // As awq/modules/linear/gemv.py: calculate_zeros_width, which knows no other sizes.
  uint64_t multiple = 1;
  if (group_size == 64) multiple = 2;
  if (group_size == 32) multiple = 4;
  if (group_size < 128 && multiple == 1) return std::nullopt;
  const std::optional<uint64_t> words =
      CheckedAlignUp(CeilDiv(k / group_size, kAwqCodesPerWord), multiple);
  return words ? CheckedMul(*words, kAwqCodesPerWord) : std::nullopt;
}

Result<Layout> DecideLayout(const Checkpoint& checkpoint, std::string_view module,
                            const Tensors& tensors) {
  const Shapes shapes(tensors);
  for (const Layout layout :
       {Layout::kGemm, Layout::kGemv, Layout::kGemvFast, Layout::kMarlin, Layout::kGptq}) {
    if (Fits(layout, shapes)) return layout;
  }
  const auto show = [](const StoredTensor* tensor) {
    return tensor == nullptr
               ? std::string("none")
               : fmt::format("{} {}", DTypeName(tensor->dtype), ShowShape(tensor->shape));
  };
  return Malformed(checkpoint.Where(*tensors.qweight),
                   "the tensors of the module fit none of AWQ's layouts")
      .Found(fmt::format("{}: qweight {}, qzeros {}, scales {}", module, show(tensors.qweight),
                         show(tensors.qzeros), show(tensors.scales)))
      .Expected(
          "gemm: I32 [K, N/8], I32 [G, N/8], [G, N]; gemv: I32 [N, K/8], I32 [N, P/8], [N, P]; "
          "gemv_fast: I16 [N/4, K], F16 [P, N], [P, N]")
      .Id(FindingId("awq-layout"));
}

namespace {

uint64_t GroupSize(const Settings& settings, uint64_t k) {
  return settings.group_size == -1 ? k : static_cast<uint64_t>(settings.group_size);
}

// Finds the three tensors and checks what holds for every layout.
Result<Tensors> FindTensors(const Checkpoint& checkpoint, const ModuleTensors& module) {
  Tensors tensors;
  tensors.qweight = module.Find("qweight");
  tensors.scales = module.Find("scales");
  tensors.qzeros = module.Find("qzeros");
  if (tensors.qzeros == nullptr) tensors.qzeros = module.Find("scaled_zeros");
  if (const StoredTensor* weight = module.Find("weight")) {
    return Malformed(module.name, "the module has both a weight and a qweight")
        .Found(
            fmt::format("{} and {}", checkpoint.Where(*weight), checkpoint.Where(*tensors.qweight)))
        .Hint("Loaders disagree about which one counts; remove the other")
        .Id(FindingId("weight-twice"));
  }
  if (const StoredTensor* g_idx = module.Find("g_idx")) {
    return Malformed(checkpoint.Where(*g_idx), "AWQ modules have no group index")
        .Hint("The quant_method may be wrong: GPTQ modules have one")
        .Id(FindingId("awq-layout"));
  }
  if (tensors.scales == nullptr) {
    return Malformed(checkpoint.Where(*tensors.qweight), "scales of the module are missing")
        .Hint("A shard is missing, or the index is wrong")
        .Id(FindingId("tensor-missing"));
  }
  for (const StoredTensor* tensor : {tensors.qweight, tensors.qzeros, tensors.scales}) {
    if (tensor == nullptr || tensor->shape.size() == 2) continue;
    return Unsupported(checkpoint.Where(*tensor),
                       "prepack reads only matrices here, not stacked experts")
        .Found(ShowShape(tensor->shape))
        .Expected("two dimensions")
        .Id(FindingId("awq-rank"));
  }
  if (tensors.qweight->bytes == 0) {
    return Malformed(checkpoint.Where(*tensors.qweight), "the weight is empty")
        .Found(ShowShape(tensors.qweight->shape))
        .Id(FindingId("tensor-shape"));
  }
  Status status =
      RequireDType(checkpoint, *tensors.qweight, "packed codes", {DType::kI32, DType::kI16});
  if (status.ok()) {
    status = RequireDType(checkpoint, *tensors.scales, "scales",
                          {DType::kF16, DType::kBF16, DType::kF32});
  }
  if (!status.ok()) return status;
  return tensors;
}

// The layouts that are not read here.
Status CheckLayout(const Checkpoint& checkpoint, const Tensors& tensors, Layout layout,
                   const Settings& settings) {
  if (layout == Layout::kMarlin) {
    return Unsupported(checkpoint.Where(*tensors.qweight), "the module holds AWQ-Marlin GPU tiles")
        .Found(ShowShape(tensors.qweight->shape))
        .Hint("Use the GEMM version of this checkpoint")
        .Id(FindingId("awq-marlin"));
  }
  if (layout == Layout::kGptq) {
    return Malformed(checkpoint.Where(*tensors.qweight),
                     "qweight is [K/8, N]: this is GPTQ packing, but the config declares AWQ")
        .Found(fmt::format("qweight {}, scales {}", ShowShape(tensors.qweight->shape),
                           ShowShape(tensors.scales->shape)))
        .Expected(fmt::format("[K, N/8] and [K/gs, N], as {} says", settings.where))
        .Hint("Correct quant_method (packing_format for AutoRound)")
        .Id(FindingId("awq-gptq-packing"));
  }
  if (layout != Layout::kGemm && !settings.pack_method.empty()) {
    return Malformed(checkpoint.Where(*tensors.qweight),
                     "pack_method is a key of Quark, which writes the gemm layout only")
        .Found(LayoutName(layout))
        .Expected("gemm")
        .Id(FindingId("awq-layout"));
  }
  if (tensors.qzeros == nullptr && settings.zero_point) {
    return Malformed(checkpoint.Where(*tensors.qweight),
                     "zero_point is true, but qzeros of the module is missing")
        .Hint("A shard is missing, or the config is wrong")
        .Id(FindingId("tensor-missing"));
  }
  return {};
}

void CompareVersion(const ModuleTensors& module, Layout layout, const Settings& settings,
                    FindingTally& findings) {
  const std::string_view version = settings.version;
  if (version.empty() || version == LayoutName(layout)) return;
  if (layout == Layout::kGemvFast && version == "llm-awq") return;
  findings.Add("awq-version-wrong", module.name,
               fmt::format("the tensors have layout {}, but {} says version \"{}\"",
                           LayoutName(layout), settings.where, Printable(version)));
}

// N and K as the layout has them.
struct Dimensions {
  uint64_t n = 0;
  uint64_t k = 0;
};

Result<Dimensions> FindDimensions(const Checkpoint& checkpoint, const Tensors& tensors,
                                  Layout layout) {
  const TensorShape& qweight = tensors.qweight->shape;
  const TensorShape& scales = tensors.scales->shape;
  Dimensions found{.n = scales[1], .k = qweight[0]};
  if (layout == Layout::kGemv) {
    // Cannot overflow: bytes of a file are counted by 63 bits, and each holds two codes.
    found = {.n = qweight[0], .k = qweight[1] * kAwqCodesPerWord};
  } else if (layout == Layout::kGemvFast) {
    found.k = qweight[1];
  }
  const bool fast = layout == Layout::kGemvFast;
  if (fast && (found.k % kGemvFastCols != 0 || found.n % kAwqCodesPerWord != 0)) {
    return Malformed(checkpoint.Where(*tensors.qweight),
                     "the GEMV-fast layout interleaves 64 input channels, and 8 output channels")
        .Found(fmt::format("K = {}, N = {}", found.k, found.n))
        .Expected("multiples of 64 and of 8")
        .Id(FindingId("tensor-shape"));
  }
  return found;
}

// What the stored number of groups says about the group size, for the message.
std::string FittingGroupSize(Layout layout, uint64_t k, uint64_t groups) {
  if (layout == Layout::kGemm) {
    if (groups == 0 || k % groups != 0) return "no group size";
    return fmt::format("group_size {}", k / groups);
  }
  std::string sizes;
  for (const uint64_t size : {32U, 64U, 128U, 256U}) {
    if (k % size != 0 || PaddedAwqGroups(k, size) != groups) continue;
    sizes += fmt::format("{}{}", sizes.empty() ? "group_size " : " or ", size);
  }
  return sizes.empty() ? "no group size that the layout has" : sizes;
}

Status CheckGroups(const Checkpoint& checkpoint, const Tensors& tensors, Layout layout,
                   const Dimensions& size, const Settings& settings) {
  const uint64_t group_size = GroupSize(settings, size.k);
  const bool padded = layout != Layout::kGemm;
  const uint64_t stored = tensors.scales->shape[layout == Layout::kGemv ? 1 : 0];
  const std::optional<uint64_t> expected =
      padded ? PaddedAwqGroups(size.k, group_size) : CeilDiv(size.k, group_size);
  if (expected != stored) {
    return Malformed(checkpoint.Where(*tensors.scales),
                     "the number of scales contradicts the config's group size")
        .Found(fmt::format("{}{} scale groups, which for K = {} mean {}", stored,
                           padded ? " (padded)" : "", size.k,
                           FittingGroupSize(layout, size.k, stored)))
        .Expected(fmt::format("group_size {}, as {} says", settings.group_size, settings.where))
        .Id(FindingId("group-size-mismatch"));
  }
  if (size.k % group_size == 0) return {};
  return Malformed(checkpoint.Where(*tensors.qweight), "K is not a multiple of the group size")
      .Found(fmt::format("K = {}, group size {}", size.k, group_size))
      .Hint("No AWQ quantizer writes a short last group")
      .Id(FindingId("group-size-mismatch"));
}

// What lies beside qweight and does not belong to it.
Status CheckOthers(const Checkpoint& checkpoint, const ModuleTensors& module,
                   FindingTally& findings) {
  static constexpr std::array<std::string_view, 5> kKnown = {"bias", "qweight", "qzeros", "scales",
                                                             "scaled_zeros"};
  for (const auto& [suffix, tensor] : module.tensors) {
    if (std::ranges::find(kKnown, suffix) != kKnown.end()) continue;
    if (suffix == "lora_A" || suffix == "lora_B") {
      return Unsupported(checkpoint.Where(*tensor), "low-rank adapters are not supported")
          .Found(ShowShape(tensor->shape))
          .Hint(
              "Without the adapter the module computes something else; merge it before quantizing, "
              "or remove it if that is what you want")
          .Id(FindingId("adapter-unsupported"));
    }
    findings.Add("tensor-unknown", tensor->name,
                 "unknown tensor of a quantized module; prepack copies it");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<QuantizedLinear>> DescribeModule(const Checkpoint& checkpoint,
                                                        const ModuleTensors& module,
                                                        const Settings& settings,
                                                        FindingTally& findings) {
  if (settings.bits != 4) {
    return Unsupported(module.name, "AWQ is defined for 4 bits")
        .Found(fmt::format("{} bits ({})", settings.bits, settings.where))
        .Id(FindingId("awq-bits"));
  }
  if (ClassOfModule(module.name) == ModuleClass::kEmbedding) {
    return Unsupported(module.name, "quantized embeddings are not supported")
        .Hint("Exclude the embedding when quantizing")
        .Id(FindingId("embedding-quantized"));
  }
  PREPACK_TRY_ASSIGN(const Tensors tensors, FindTensors(checkpoint, module));
  PREPACK_TRY_ASSIGN(const Layout layout, DecideLayout(checkpoint, module.name, tensors));
  Status status = CheckLayout(checkpoint, tensors, layout, settings);
  if (!status.ok()) return status;
  PREPACK_TRY_ASSIGN(const Dimensions size, FindDimensions(checkpoint, tensors, layout));
  status = CheckGroups(checkpoint, tensors, layout, size, settings);
  if (status.ok()) status = CheckOthers(checkpoint, module, findings);
  if (!status.ok()) return status;
  CompareVersion(module, layout, settings, findings);

  ModuleParts parts;
  parts.module = module.name;
  parts.n = size.n;
  parts.k = size.k;
  parts.tensors = tensors;
  parts.scheme.code = CodeType::kU4;
  parts.scheme.bits = 4;
  parts.scheme.group_size = GroupSize(settings, size.k);
  parts.scheme.granularity =
      parts.scheme.group_size == size.k ? Granularity::kChannel : Granularity::kGroup;
  parts.scheme.symmetric = !settings.zero_point;
  parts.is_signed = settings.is_signed();
  parts.in_order = settings.in_order();
  switch (layout) {
    case Layout::kGemv:
      return MakeGemvLinear(checkpoint, parts);
    case Layout::kGemvFast:
      return MakeGemvFastLinear(checkpoint, parts);
    default:
      return MakeGemmLinear(checkpoint, parts);
  }
}

}  // namespace prepack::awq
