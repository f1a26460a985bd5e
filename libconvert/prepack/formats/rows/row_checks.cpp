#include "prepack/formats/rows/row_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "prepack/base/checked.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_match.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/kernels/codes.h"
#include "prepack/model/dequantized_linear.h"

namespace prepack {

namespace {

// The only value of a tensor of floats.
Result<float> ReadSingleFloat(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  PREPACK_TRY(RequireDType(checkpoint, tensor, "the scales of activations",
                           {DType::kBF16, DType::kF16, DType::kF32}));
  if (ElementCount(tensor) != 1) {
    return Malformed(checkpoint.Where(tensor), "activations need exactly one static scale")
        .Found(ShowShape(tensor.shape))
        .Expected("[1]")
        .Id(FindingId("tensor-shape"));
  }
  float value = 0;
  PREPACK_TRY(ReadFloats(checkpoint, tensor, 0, {&value, 1}));
  return value;
}

}  // namespace

uint32_t LoadLittleWord(const std::byte* bytes) {
  uint32_t word = 0;
  for (uint32_t i = 0; i < 4; ++i) word |= std::to_integer<uint32_t>(bytes[i]) << (8 * i);
  return word;
}

int64_t LoadLittleInt(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  }
  return bytes.size() == 4 ? static_cast<int32_t>(static_cast<uint32_t>(value))
                           : static_cast<int64_t>(value);
}

uint64_t ElementCount(const StoredTensor& tensor) {
  return CheckedProduct(tensor.shape).value_or(0);
}

Status CheckWeightMatrix(const Checkpoint& checkpoint, std::string_view module,
                         const StoredTensor& weight, std::string_view type,
                         std::string_view matrix) {
  const TensorShape& dims = weight.shape;
  if (dims.size() > 2) {
    return Unsupported(checkpoint.Where(weight),
                       fmt::format("stacked {} weights are not supported yet", type))
        .Found(ShowShape(dims))
        .Expected(fmt::format("{}, one matrix per module", matrix))
        .Hint("Save the model again with one linear layer per expert")
        .Id(FindingId("storage-unsupported"));
  }
  if (dims.size() != 2 || dims[0] == 0 || dims[1] == 0) {
    return Malformed(checkpoint.Where(weight), "the weight is empty or not a matrix")
        .Found(ShowShape(dims))
        .Expected(matrix)
        .Id(FindingId("tensor-shape"));
  }
  if (ClassOfModule(module) == ModuleClass::kEmbedding) return QuantizedEmbedding(module, weight);
  return {};
}

Status QuantizedEmbedding(std::string_view module, const StoredTensor& weight) {
  return Unsupported(module, "quantized embeddings are not supported")
      .Found(fmt::format("{} {}", DTypeName(weight.dtype), ShowShape(weight.shape)))
      .Hint("Leave the embedding out when quantizing")
      .Id(FindingId("embedding-quantized"));
}

std::vector<uint64_t> WithExperts(const MatrixShape& shape, std::vector<uint64_t> dims) {
  if (shape.experts) dims.insert(dims.begin(), *shape.experts);
  return dims;
}

std::vector<std::vector<uint64_t>> ScaleShapes(const MatrixShape& shape, const Scheme& scheme) {
  const uint64_t groups = CeilDiv(shape.k, scheme.group_size);
  switch (scheme.granularity) {
    case Granularity::kTensor:
      if (shape.experts) return {{*shape.experts, 1, 1}, {*shape.experts, 1}, {*shape.experts}};
      return {{1}, {}, {1, 1}};
    case Granularity::kChannel:
      return {WithExperts(shape, {shape.n, 1}), WithExperts(shape, {shape.n})};
    case Granularity::kGroup:
      return {WithExperts(shape, {shape.n, groups})};
    case Granularity::kBlock: {
      const uint64_t down = CeilDiv(shape.n, scheme.scale_rows);
      std::vector<std::vector<uint64_t>> shapes = {WithExperts(shape, {down, groups})};
      if (shape.experts) return shapes;
      shapes.push_back({down, 1, groups, 1});  // ModelOpt, also of one block without dimensions
      if (down == 1 && groups == 1) shapes.emplace_back();
      return shapes;
    }
  }
  return {};
}

namespace {

Status RequireScaleDType(const Checkpoint& checkpoint, const StoredTensor& scale, ScaleForm form) {
  switch (form) {
    case ScaleForm::kExponent:
      return RequireDType(checkpoint, scale, "the scales", {DType::kU8, DType::kF8E8M0});
    case ScaleForm::kFloat8:
      return RequireDType(checkpoint, scale, "the scales", {DType::kF8E4M3});
    case ScaleForm::kFactor:
    case ScaleForm::kDivisor:
      break;
  }
  return RequireDType(checkpoint, scale, "the scales", {DType::kBF16, DType::kF16, DType::kF32});
}

}  // namespace

Status CheckScaleTensor(const Checkpoint& checkpoint, const StoredTensor& scale,
                        const MatrixShape& shape, const Scheme& scheme, ScaleForm form) {
  if (scale.dtype == DType::kF64) {
    return Unsupported(checkpoint.Where(scale), "scales of 64 bits are not supported")
        .Found("F64")
        .Expected("BF16, F16 or F32")
        .Id(FindingId("tensor-dtype"));
  }
  PREPACK_TRY(RequireScaleDType(checkpoint, scale, form));
  const auto shapes = ScaleShapes(shape, scheme);
  if (std::ranges::find(shapes, scale.shape) != shapes.end()) return {};
  return Malformed(checkpoint.Where(scale), "the shape of the scales contradicts the weight")
      .Found(ShowShape(scale.shape))
      .Expected(fmt::format("{} for a {} scheme of [{}, {}]", ShowShape(shapes.front()),
                            GranularityName(scheme.granularity), shape.n, shape.k))
      .Id(FindingId("tensor-shape"));
}

namespace {

constexpr auto kExponents = [] {
  std::array<float, 256> floats{};
  for (size_t bits = 0; bits < floats.size(); ++bits) {
    floats[bits] = F8E8M0ToF32(static_cast<uint8_t>(bits));
  }
  return floats;
}();

}  // namespace

Status ReadScaleNumbers(const Checkpoint& checkpoint, const StoredTensor& tensor, ScaleForm form,
                        uint64_t first, std::span<float> out) {
  if (form == ScaleForm::kExponent || form == ScaleForm::kFloat8) {
    const std::array<float, 256>& floats =
        form == ScaleForm::kExponent ? kExponents : CodeValues(CodeType::kF8E4M3);
    Scratch<uint8_t> stored(out.size());
    const std::span<uint8_t> bytes(stored.data(), out.size());
    PREPACK_TRY(checkpoint.Read(tensor, first, std::as_writable_bytes(bytes)));
    std::ranges::transform(bytes, out.begin(), [&](uint8_t byte) { return floats[byte]; });
    return {};
  }
  Status status = ReadFloats(checkpoint, tensor, first, out);
  if (status.ok() && form == ScaleForm::kDivisor) {
    for (float& scale : out) scale = 1.0F / scale;
  }
  return status;
}

DType ScaleDType(const StoredTensor& scale, ScaleForm form) {
  switch (form) {
    case ScaleForm::kFactor:
      return scale.dtype;
    case ScaleForm::kDivisor:
      return DType::kF32;
    case ScaleForm::kFloat8:
    case ScaleForm::kExponent:
      // It has more bits than E4M3 has, and all powers of two of f32, subnormal ones included.
      return DType::kBF16;
  }
  return scale.dtype;
}

Result<GlobalScale> ReadGlobalScale(const Checkpoint& checkpoint, const StoredTensor& tensor,
                                    bool divides) {
  PREPACK_TRY(RequireDType(checkpoint, tensor, "the global scale", {DType::kF32}));
  if (ElementCount(tensor) != 1) {
    return Malformed(checkpoint.Where(tensor), "a module needs exactly one global scale")
        .Found(ShowShape(tensor.shape))
        .Expected("[1]")
        .Id(FindingId("tensor-shape"));
  }
  GlobalScale scale{.divides = divides};
  PREPACK_TRY(ReadFloats(checkpoint, tensor, 0, {&scale.value, 1}));
  if (std::isfinite(scale.value) && scale.value > 0) return scale;
  return Malformed(checkpoint.Where(tensor), "the global scale is not a positive number")
      .Found(fmt::format("{}", scale.value))
      .Hint("The module was never calibrated, or the tensor was not written: quantize it again")
      .Id(FindingId("global-scale-invalid"));
}

std::optional<GlobalScale> FindInputGlobalScale(const Checkpoint& checkpoint,
                                                const StoredTensor* tensor, bool divides) {
  if (tensor == nullptr) return std::nullopt;
  const Result<GlobalScale> scale = ReadGlobalScale(checkpoint, *tensor, divides);
  return scale.ok() ? std::optional(*scale) : std::nullopt;
}

Status CheckFp8Codes(const Checkpoint& checkpoint, const StoredTensor& tensor,
                     const PanelRange& range, std::span<const std::byte> codes) {
  if (!HasF8NaN(U8(codes.data()), codes.size())) return {};
  const auto nan = std::ranges::find_if(
      codes, [](std::byte code) { return (code & std::byte{0x7F}) == std::byte{0x7F}; });
  const auto i = static_cast<uint64_t>(nan - codes.begin());
  return Malformed(checkpoint.Where(tensor), "an FP8 weight is NaN")
      .Found(fmt::format("0x{:02X} at [{}, {}]", std::to_integer<uint8_t>(*nan),
                         range.n0 + i / range.cols, range.k0 + i % range.cols))
      .Hint("Quantize the model again: this layer computes garbage in every runtime")
      .Id(FindingId("code-nan"));
}

Result<InputQuantization> ReadStaticInput(const Checkpoint& checkpoint, std::string_view module,
                                          const ActivationScheme& activations,
                                          const StoredTensor* scale, const StoredTensor* zero_point,
                                          bool is_unsigned) {
  const auto missing = [&](std::string_view name) {
    return Malformed(module,
                     fmt::format("{} is missing, but activations are quantized statically", name))
        .Hint("A shard is missing, or the module was never calibrated")
        .Id(FindingId("input-missing"));
  };
  if (scale == nullptr) return missing("input_scale");
  PREPACK_TRY_ASSIGN(const float value, ReadSingleFloat(checkpoint, *scale));
  if (!std::isfinite(value) || value <= 0) {
    return Malformed(checkpoint.Where(*scale), "an activation scale is not a positive number")
        .Found(fmt::format("{}", value))
        .Hint("The module was never calibrated, for example an expert that no sample reached")
        .Id(FindingId("input-scale-invalid"));
  }
  InputQuantization input{.scale = value, .zero_point = 0};
  if (activations.symmetric) return input;
  if (zero_point == nullptr) return missing("input_zero_point");
  Status status = RequireDType(checkpoint, *zero_point, "the zero points of activations",
                               {is_unsigned ? DType::kU8 : DType::kI8});
  if (status.ok() && ElementCount(*zero_point) != 1) {
    status = RequireShape(checkpoint, *zero_point, std::vector<uint64_t>{1}, "one per module");
  }
  if (!status.ok()) return status;
  std::byte stored{};
  status = checkpoint.Read(*zero_point, 0, {&stored, 1});
  if (!status.ok()) return status;
  const auto byte = std::to_integer<uint8_t>(stored);
  input.zero_point = is_unsigned ? byte - 128 : SignedByte(byte);
  return input;
}

}  // namespace prepack
