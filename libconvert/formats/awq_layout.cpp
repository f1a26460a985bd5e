#include "formats/awq_layout.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "base/checked.h"
#include "formats/finding.h"
#include "formats/module_tensors.h"
#include "kernels/awq_gemm.h"

namespace prepack {
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
  explicit Shapes(const AwqTensors& tensors)
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
bool Fits(AwqLayout layout, const Shapes& s) {
  const bool grouped_rows = s.rows > s.scale_rows;
  switch (layout) {
    case AwqLayout::kGemm:
      return s.words && grouped_rows && Times(s.cols, kAwqCodesPerWord, s.scale_cols) &&
             (!s.has_zeros ||
              (s.zero_words && s.zero_rows == s.scale_rows && s.zero_cols == s.cols));
    case AwqLayout::kGemv:
      return s.words && s.zero_words && s.rows == s.scale_rows && s.rows == s.zero_rows &&
             Times(s.zero_cols, kAwqCodesPerWord, s.scale_cols);
    case AwqLayout::kGemvFast:
      return s.halves && s.zero_floats && Times(s.rows, 4, s.scale_cols) &&
             s.zero_rows == s.scale_rows && s.zero_cols == s.scale_cols;
    case AwqLayout::kMarlin:
      return s.words && !s.has_zeros && Times(s.scale_cols, 2, s.cols);
    case AwqLayout::kGptq:
      return s.words && grouped_rows && s.cols == s.scale_cols &&
             (!s.has_zeros || (s.zero_words && s.zero_rows == s.scale_rows &&
                               s.zero_cols == CeilDiv(s.cols, kAwqCodesPerWord)));
  }
  return false;
}

}  // namespace

std::string_view AwqLayoutName(AwqLayout layout) {
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

Result<AwqLayout> DecideAwqLayout(const Checkpoint& checkpoint, std::string_view module,
                                  const AwqTensors& tensors) {
  const Shapes shapes(tensors);
  for (const AwqLayout layout : {AwqLayout::kGemm, AwqLayout::kGemv, AwqLayout::kGemvFast,
                                 AwqLayout::kMarlin, AwqLayout::kGptq}) {
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

}  // namespace prepack
