#include "prepack/formats/quark/integers.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/formats/awq/linear.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/rows/row_checks.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/kernels/awq.h"

namespace prepack::quark {
namespace {

class Description {
 public:
  Description(const Checkpoint& checkpoint, const ModuleTensors& module,
              const IntegerMeaning& meaning)
      : checkpoint_(checkpoint), module_(module), meaning_(meaning) {}

  Result<std::unique_ptr<QuantizedLinear>> Run() {
    PREPACK_TRY(ReadShape());
    PREPACK_TRY(RefuseInputsFirst(checkpoint_, module_.name, *parts_.weight, parts_.n, parts_.k));
    SetScheme();
    PREPACK_TRY(FindScale());
    PREPACK_TRY(FindZeroPoint());
    PREPACK_TRY(FindInput());
    if (!ByWordsOfInputs()) return MakeIntegerLinear(checkpoint_, parts_);
    return awq::MakeGemmLinear(
        checkpoint_,
        {.module = std::string(module_.name),
         .scheme = parts_.scheme,
         .n = parts_.n,
         .k = parts_.k,
         .tensors = {.qweight = parts_.weight, .qzeros = parts_.zero_point, .scales = parts_.scale},
         .is_signed = meaning_.is_signed,
         .in_order = !meaning_.awq_order,
         .side_tensors = parts_.side_tensors,
         .input = parts_.input});
  }

 private:
  bool IsGrouped() const { return meaning_.granularity == Granularity::kGroup; }
  bool ByWordsOfInputs() const { return IsGrouped() && meaning_.bits == 4; }
  DType CodeDType() const {
    if (meaning_.bits == 4) return DType::kI32;
    return meaning_.is_signed ? DType::kI8 : DType::kU8;
  }

  Status ReadShape() {
    parts_.module = module_.name;
    parts_.is_signed = meaning_.is_signed;
    parts_.awq_order = meaning_.awq_order;
    parts_.weight = module_.Find("weight");
    const StoredTensor& weight = *parts_.weight;
    PREPACK_TRY(RequireDType(checkpoint_, weight, "the weights", {CodeDType()}));
    if (weight.shape.size() != 2 || weight.shape[0] == 0 || weight.shape[1] == 0) {
      return Unsupported(checkpoint_.Where(weight), "the weight is not a matrix")
          .Found(ShowShape(weight.shape))
          .Id(FindingId("tensor-shape"));
    }
    const uint64_t per_word = meaning_.bits == 4 ? kAwqCodesPerWord : 1;
    const uint64_t packed = weight.shape[1] * per_word;
    parts_.groups_by_outputs = HasGroupsByOutputs();
    const bool by_inputs = IsGrouped() && !parts_.groups_by_outputs;
    parts_.n = by_inputs ? OutputsOf(packed) : weight.shape[0];
    parts_.k = by_inputs ? weight.shape[0] : packed;
    if (IsGrouped() && parts_.k % meaning_.group_size != 0) {
      return Malformed(module_.name, "the group size does not divide the input channels")
          .Found(fmt::format("K = {}, groups of {}", parts_.k, meaning_.group_size))
          .Id(FindingId("group-size-mismatch"));
    }
    return {};
  }

  // As the first versions have them. No scales fit both ways, unless groups are of one channel.
  bool HasGroupsByOutputs() const {
    const StoredTensor* scale = module_.Find("weight_scale");
    if (!IsGrouped() || meaning_.bits != 8 || scale == nullptr || scale->shape.size() != 2) {
      return false;
    }
    const TensorShape& weight = parts_.weight->shape;
    return meaning_.group_size > 1 && scale->shape[0] == weight[0] &&
           CheckedMul(scale->shape[1], meaning_.group_size) == weight[1];
  }

  // Of columns of words, the last of which may be padded: there are as many channels as scales.
  uint64_t OutputsOf(uint64_t packed) const {
    const StoredTensor* scale = module_.Find("weight_scale");
    if (meaning_.bits != 4 || scale == nullptr || scale->shape.size() != 2) return packed;
    const uint64_t outputs = scale->shape[1];
    return outputs <= packed && packed - outputs < kAwqCodesPerWord ? outputs : packed;
  }

  void SetScheme() {
    Scheme& scheme = parts_.scheme;
    // Unsigned codes have the zero points that are stored, whatever Quark calls them.
    scheme.symmetric = meaning_.symmetric && meaning_.is_signed;
    const bool keeps_sign = meaning_.bits == 8 && scheme.symmetric;
    scheme.code = keeps_sign ? CodeType::kS8 : UnsignedCodeFor(meaning_.bits);
    scheme.bits = meaning_.bits;
    parts_.stored = meaning_.granularity;
    const bool spreads = parts_.stored == Granularity::kTensor && !keeps_sign;
    scheme.granularity = spreads ? Granularity::kChannel : parts_.stored;
    scheme.group_size = IsGrouped() ? meaning_.group_size : parts_.k;
    scheme.scale_rows = scheme.granularity == Granularity::kTensor ? parts_.n : 1;
    scheme.activations = meaning_.activations;
  }

  // Of a tensor with as many numbers per scale; `width` of N numbers.
  Status RequireParameterShape(const StoredTensor& tensor, std::string_view what, uint64_t width) {
    switch (meaning_.granularity) {
      case Granularity::kGroup:
        if (parts_.groups_by_outputs) {
          return RequireShape(checkpoint_, tensor,
                              std::vector<uint64_t>{width, parts_.k / meaning_.group_size}, what);
        }
        return RequireShape(checkpoint_, tensor,
                            std::vector<uint64_t>{parts_.k / meaning_.group_size, width}, what);
      case Granularity::kChannel:
        return RequireShape(checkpoint_, tensor, std::vector<uint64_t>{width}, what);
      default:
        if (ElementCount(tensor) == 1) return {};
        return RequireShape(checkpoint_, tensor, std::vector<uint64_t>{}, what);
    }
  }

  Status FindScale() {
    parts_.scale = module_.Find("weight_scale");
    if (parts_.scale == nullptr) {
      return Malformed(module_.name, "weight_scale is missing")
          .Hint("A shard is missing, or the checkpoint is incomplete")
          .Id(FindingId("tensor-missing"));
    }
    PREPACK_TRY(RequireDType(checkpoint_, *parts_.scale, "the scales",
                             {DType::kBF16, DType::kF16, DType::kF32}));
    return RequireParameterShape(*parts_.scale, "as the config's qscheme calls for", parts_.n);
  }

  Status FindZeroPoint() {
    parts_.zero_point = module_.Find("weight_zero_point");
    if (parts_.zero_point == nullptr && parts_.scheme.symmetric) return {};
    if (parts_.zero_point == nullptr) {
      return Malformed(module_.name, "weight_zero_point is missing, but the scheme is asymmetric")
          .Hint("A shard is missing, or the checkpoint is incomplete")
          .Id(FindingId("tensor-missing"));
    }
    PREPACK_TRY(RequireDType(checkpoint_, *parts_.zero_point, "the zero points", {CodeDType()}));
    if (meaning_.bits == 4 && meaning_.granularity == Granularity::kTensor &&
        ElementCount(*parts_.zero_point) == 0) {
      return Malformed(checkpoint_.Where(*parts_.zero_point), "the zero point was not stored")
          .Found(ShowShape(parts_.zero_point->shape))
          .Expected("one")
          .Hint("Quark 0.6 lost it: quantize the model again with a newer version")
          .Id(FindingId("tensor-shape"));
    }
    const uint64_t per_word = meaning_.bits == 4 ? kAwqCodesPerWord : 1;
    return RequireParameterShape(*parts_.zero_point, "as the config's qscheme calls for",
                                 CeilDiv(parts_.n, per_word));
  }

  Status FindInput() {
    const StoredTensor* scale = module_.Find("input_scale");
    const StoredTensor* zero_point = module_.Find("input_zero_point");
    for (const StoredTensor* tensor : {scale, zero_point}) {
      if (tensor != nullptr) parts_.side_tensors.push_back(tensor);
    }
    const ActivationScheme& activations = parts_.scheme.activations;
    if (activations.type == ActivationType::kNone || activations.dynamic) return {};
    PREPACK_TRY_ASSIGN(const InputQuantization input,
                       ReadStaticInput(checkpoint_, module_.name, activations, scale, zero_point,
                                       meaning_.unsigned_inputs));
    parts_.input = input;
    return {};
  }

  const Checkpoint& checkpoint_;
  const ModuleTensors& module_;
  const IntegerMeaning& meaning_;
  IntegerParts parts_;
};

}  // namespace

Result<std::unique_ptr<QuantizedLinear>> DescribeIntegers(const Checkpoint& checkpoint,
                                                          const ModuleTensors& module,
                                                          const IntegerMeaning& meaning) {
  return Description(checkpoint, module, meaning).Run();
}

}  // namespace prepack::quark
