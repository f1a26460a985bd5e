// Asks the checkpoint what layouts want to know of a module.

#include "prepack/convert/module_request.h"

#include <algorithm>
#include <vector>

#include "prepack/base/float_convert.h"
#include "prepack/base/status.h"
#include "prepack/formats/module_match.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/layouts/table.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

// Reads the zero points and scales that some format might have no place for.
Result<ValueFacts> FactsOf(const QuantizedLinear& linear) {
  ValueFacts facts;
  const ActivationScheme& activations = linear.scheme().activations;
  facts.lacks_input_global_scale = linear.global_scale() && !linear.input_global_scale() &&
                                   activations.type != ActivationType::kNone;
  const bool zeros = !linear.scheme().symmetric;
  const bool scales = linear.stored_scale_dtype() == DType::kF32 && !linear.global_scale();
  if (!zeros && !scales) return facts;
  const uint64_t step = std::max<uint64_t>(32, (uint64_t{1} << 18) / linear.groups() / 32 * 32);
  std::vector<float> scale_values;
  std::vector<uint8_t> zero_values;
  for (uint64_t n0 = 0; n0 < linear.n(); n0 += step) {
    const uint64_t rows = std::min(step, linear.n() - n0);
    zero_values.resize(zeros ? rows * linear.groups() : 0);
    scale_values.resize(scales ? rows * linear.groups() : 0);
    if (zeros) PREPACK_TRY(linear.ReadZeroPoints(n0, rows, zero_values));
    if (scales) PREPACK_TRY(linear.ReadScales(n0, rows, scale_values));
    for (const uint8_t zero : zero_values) {
      facts.has_zero_of_zero |= zero == 0;
      facts.has_zero_beyond |= zero >> linear.scheme().bits != 0;
    }
    for (const float scale : scale_values) {
      facts.has_scale_beyond_half |= RoundTo(DType::kF16, scale) != scale;
    }
  }
  return facts;
}

// How many experts of a mixture the module is.
uint64_t ExpertsIn(const QuantizedLinear& linear) {
  if (linear.stacked_experts() > 0) return linear.stacked_experts();
  return IsExpert(linear.module()) ? 1 : 0;
}

MixtureFault FaultOfMixture(const Plan& plan, std::string_view module) {
  const auto found = plan.mixture_faults.find(MixtureOf(module));
  return found == plan.mixture_faults.end() ? MixtureFault::kNone : found->second;
}

// Has a layout of the target no name for the module?
bool IsUnnamed(const Plan& plan, std::string_view module) {
  return std::ranges::any_of(plan.layouts,
                             [&](const Layout* layout) { return !layout->IsNamed(module); });
}

}  // namespace

std::string_view MixtureOf(std::string_view module) {
  const auto expert = ParseExpertName(ParseNodeShare(module).module);
  return expert ? expert->mixture : std::string_view();
}

PackRequest InBf16(PackRequest request) {
  request.scheme = DequantizedScheme(request.n, request.k);
  request.reordered = false;
  return request;
}

Result<PackRequest> RequestFor(const Checkpoint& checkpoint, const QuantizedLinear& linear,
                               std::span<const BiasPlace> biases, const Arithmetic& arithmetic,
                               const PlanOptions& options, const Plan& plan) {
  PackRequest asked = {
      .scheme = linear.scheme(),
      .n = linear.n(),
      .k = linear.k(),
      .activation_dtype = plan.activation_dtype,
      .stored_scale_dtype = linear.stored_scale_dtype(),
      .bias_dtype = biases.empty() ? std::nullopt : std::optional(biases.front().tensor->dtype),
      .reordered = linear.reordered(),
      .inputs_first = IsConv1d(checkpoint.config(), linear.module()),
      .embedding = ClassOfModule(linear.module()) == ModuleClass::kEmbedding,
      .unnamed = IsUnnamed(plan, linear.module()),
      .mixture_fault = FaultOfMixture(plan, linear.module()),
      .experts = ExpertsIn(linear),
      .exact_scales = options.exact_scales};
  asked.scheme.activations = arithmetic.activations;
  if (arithmetic.in_bf16) asked = InBf16(asked);
  if (!plan.target->checkpoint) return asked;
  if (const auto known = plan.facts.find(&linear); known != plan.facts.end()) {
    asked.facts = known->second;
    return asked;
  }
  PREPACK_TRY_ASSIGN(asked.facts, FactsOf(linear));
  return asked;
}

}  // namespace prepack
