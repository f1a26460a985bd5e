#pragma once

// Checks of the tensors that go with weights stored row by row, for the formats that RowLinear
// reads. `experts` is the leading dimension of stacked tensors, 1 when they have none.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/finding.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

// A module [n, k], or `experts` of them in tensors with one dimension more.
struct MatrixShape {
  uint64_t n = 0;
  uint64_t k = 0;
  std::optional<uint64_t> experts;  // nullopt: the tensors are 2-D
};

// kMalformed unless the weight is a matrix that is not empty; kUnsupported if it is stacked or that
// of an embedding. `matrix` is the shape to expect, such as "[N, K]", and `type` names the codes.
Status CheckWeightMatrix(const Checkpoint& checkpoint, std::string_view module,
                         const StoredTensor& weight, std::string_view type,
                         std::string_view matrix);
// kUnsupported: the module is an embedding.
Status QuantizedEmbedding(std::string_view module, const StoredTensor& weight);

// `dims` with the leading dimension of the experts, if there is one.
std::vector<uint64_t> WithExperts(const MatrixShape& shape, std::vector<uint64_t> dims);

// Shapes that a tensor with one value per scale may have: some writers leave out a dimension of 1.
// The first is the usual one.
std::vector<std::vector<uint64_t>> ScaleShapes(const MatrixShape& shape, const Scheme& scheme);

// What the stored numbers are.
enum class ScaleForm : uint8_t {
  kFactor,    // BF16, F16 or F32: the scale
  kDivisor,   // the same dtypes: the scale is 1 / the number, rounded to f32
  kExponent,  // U8 or F8_E8M0: u means 2^(u − 127), and 255 is NaN
  kFloat8,    // F8_E4M3: the scale
};

// kMalformed unless the tensor, in F32, is a single positive number.
Result<GlobalScale> ReadGlobalScale(const Checkpoint& checkpoint, const StoredTensor& tensor,
                                    bool divides);

// kMalformed unless the scales have a dtype of their form and one of those shapes.
Status CheckScaleTensor(const Checkpoint& checkpoint, const StoredTensor& scale,
                        const MatrixShape& shape, const Scheme& scheme,
                        ScaleForm form = ScaleForm::kFactor);
// Reads scales of that form: `out.size()` of them from element `first` on.
Status ReadScaleNumbers(const Checkpoint& checkpoint, const StoredTensor& tensor, ScaleForm form,
                        uint64_t first, std::span<float> out);
// The dtype that the scales are exact in; of a factor its own.
DType ScaleDType(const StoredTensor& scale, ScaleForm form);

// The same of activations that are quantized at run time, where the number is only handed on: none
// if it is missing or no positive number.
std::optional<GlobalScale> FindInputGlobalScale(const Checkpoint& checkpoint,
                                                const StoredTensor* tensor, bool divides);

// kMalformed when one of the codes of FP8, which are those of the panel, is NaN.
Status CheckFp8Codes(const Checkpoint& checkpoint, const StoredTensor& tensor,
                     const PanelRange& range, std::span<const std::byte> codes);

// The static quantization of activations. A missing tensor, a scale that is not a positive finite
// number, or tensors that are not single values are kMalformed. `zero_point` is needed only when
// the activations are asymmetric. That of unsigned activations is U8, and delivered as that
// of signed ones, which is 128 less.
Result<InputQuantization> ReadStaticInput(const Checkpoint& checkpoint, std::string_view module,
                                          const ActivationScheme& activations,
                                          const StoredTensor* scale, const StoredTensor* zero_point,
                                          bool is_unsigned = false);

// A byte as two's complement.
constexpr int SignedByte(uint8_t byte) {
  return (byte ^ 0x80) - 0x80;
}

inline constexpr uint32_t kWordBits = 32;  // that codes are packed into

// A little-endian word of 32 bits.
uint32_t LoadLittleWord(const std::byte* bytes);

// A little-endian signed integer of 4 or 8 bytes.
int64_t LoadLittleInt(std::span<const std::byte> bytes);

// Number of elements; shapes of open checkpoints never overflow.
uint64_t ElementCount(const StoredTensor& tensor);

}  // namespace prepack
