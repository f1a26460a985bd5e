#include "prepack/formats/fp8/module.h"

#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/stored_linear.h"

namespace prepack::fp8 {

bool IsFloat8(DType dtype) {
  return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2 || dtype == DType::kF8E4M3Fnuz ||
         dtype == DType::kF8E5M2Fnuz;
}

Status CheckWeight(const Checkpoint& checkpoint, std::string_view module,
                   const StoredTensor& weight) {
  if (weight.dtype != DType::kF8E4M3) {
    return Unsupported(checkpoint.Where(weight), "FP8 weights of this type are not supported")
        .Found(DTypeName(weight.dtype))
        .Expected("F8_E4M3")
        .Id(FindingId("storage-unsupported"));
  }
  return CheckWeightMatrix(checkpoint, module, weight, "FP8", "[N, K]");
}

Status MissingScale(const Checkpoint& checkpoint, const StoredTensor& weight,
                    std::string_view expected) {
  return Malformed(checkpoint.Where(weight), "the scale of the FP8 weight is missing")
      .Expected(expected)
      .Hint("A shard is missing, or the index is wrong")
      .Id(FindingId("tensor-missing"));
}

Scheme SchemeOf(const Meaning& meaning, uint64_t scales, const MatrixShape& shape) {
  Scheme scheme;
  scheme.code = CodeType::kF8E4M3;
  scheme.bits = 8;
  scheme.group_size = shape.k;
  scheme.activations = meaning.activations;
  const bool one = meaning.granularity ? *meaning.granularity == Granularity::kTensor : scales == 1;
  if (meaning.block) {
    scheme.granularity = Granularity::kBlock;
    scheme.group_size = (*meaning.block)[1];
    scheme.scale_rows = (*meaning.block)[0];
  } else if (meaning.granularity == Granularity::kGroup) {
    scheme.granularity = Granularity::kGroup;
    scheme.group_size = meaning.group_size;
  } else if (one) {
    scheme.granularity = Granularity::kTensor;
    scheme.scale_rows = shape.n;
  } else {
    scheme.granularity = Granularity::kChannel;
    scheme.scale_rows = 1;
  }
  return scheme;
}

Result<std::unique_ptr<QuantizedLinear>> DescribeModule(
    const Checkpoint& checkpoint, std::string_view module, const StoredTensor& weight,
    const StoredTensor& scale, const StoredTensor* input, const Meaning& meaning) {
  RowModule parts;
  parts.module = module;
  parts.n = weight.shape[0];
  parts.k = weight.shape[1];
  parts.stored = RowCodes::kBytes;
  parts.codes = &weight;
  parts.scale = &scale;
  parts.scale_form = meaning.form;
  const MatrixShape shape{.n = parts.n, .k = parts.k, .experts = std::nullopt};
  parts.scheme = SchemeOf(meaning, ElementCount(scale), shape);
  PREPACK_TRY(RefuseInputsFirst(checkpoint, module, weight, parts.n, parts.k));
  PREPACK_TRY(CheckScaleTensor(checkpoint, scale, shape, parts.scheme, meaning.form));
  if (input != nullptr) parts.side_tensors.push_back(input);
  const ActivationScheme& activations = meaning.activations;
  if (activations.type != ActivationType::kNone && !activations.dynamic) {
    PREPACK_TRY_ASSIGN(const InputQuantization read,
                       ReadStaticInput(checkpoint, module, activations, input, nullptr));
    parts.input = read;
  }
  return std::unique_ptr<QuantizedLinear>(std::make_unique<RowLinear>(checkpoint, parts));
}

}  // namespace prepack::fp8
