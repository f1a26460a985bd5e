#include "layouts/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace prepack {
namespace {

std::string Names(std::initializer_list<DType> dtypes) {
  std::string text;
  for (const DType dtype : dtypes) {
    if (!text.empty()) text += " or ";
    text += DTypeName(dtype);
  }
  return text;
}

bool Contains(std::initializer_list<DType> dtypes, DType dtype) {
  return std::ranges::find(dtypes, dtype) != dtypes.end();
}

}  // namespace

Eligibility AllOf(std::initializer_list<Eligibility> verdicts) {
  for (const Eligibility& verdict : verdicts) {
    if (!verdict.ok) return verdict;
  }
  return Eligibility::Yes();
}

Eligibility FourBitCodes(const PackRequest& request) {
  const Scheme& scheme = request.scheme;
  if (scheme.code == CodeType::kU4 && scheme.bits == 4) return Eligibility::Yes();
  if (scheme.code == CodeType::kF8E4M3) {
    return Eligibility::No("the weights are FP8: the kernel reads 4-bit codes");
  }
  return Eligibility::No(fmt::format("the codes have {} bit{}: the kernel reads 4-bit codes",
                                     scheme.bits, scheme.bits == 1 ? "" : "s"));
}

Eligibility NoActivationQuantization(const PackRequest& request) {
  if (request.scheme.activations.type == ActivationType::kNone) return Eligibility::Yes();
  return Eligibility::No("the checkpoint quantizes activations: the kernel takes them in 16 bits");
}

Eligibility ScalesPerChannelOrGroup(const PackRequest& request) {
  const Granularity granularity = request.scheme.granularity;
  if (granularity == Granularity::kChannel || granularity == Granularity::kGroup) {
    return Eligibility::Yes();
  }
  return Eligibility::No(fmt::format(
      "the scales are per {}: the kernel takes them per output channel, or per group of inputs",
      GranularityName(granularity)));
}

Eligibility NaturalInputOrder(const PackRequest& request) {
  if (!request.reordered) return Eligibility::Yes();
  return Eligibility::No(
      "the checkpoint reorders input channels (act-order): the kernel takes groups of neighbours");
}

Eligibility MultipleOf(std::string_view name, uint64_t value, uint64_t unit, std::string_view why) {
  if (value % unit == 0) return Eligibility::Yes();
  return Eligibility::No(
      fmt::format("{} = {} is not a multiple of {}: {}", name, value, unit, why));
}

Eligibility GroupsDivideK(const PackRequest& request) {
  if (request.k % request.scheme.group_size == 0) return Eligibility::Yes();
  return Eligibility::No(
      fmt::format("groups of {} do not divide K = {}: the kernel takes K / G as "
                  "the group size",
                  request.scheme.group_size, request.k));
}

Eligibility ActivationsOneOf(const PackRequest& request, std::initializer_list<DType> allowed) {
  if (Contains(allowed, request.activation_dtype)) return Eligibility::Yes();
  return Eligibility::No(
      fmt::format("activations are {}: the kernel takes {} only (--dtype chooses)",
                  DTypeName(request.activation_dtype), Names(allowed)));
}

Eligibility BiasOneOf(const PackRequest& request, std::initializer_list<DType> allowed) {
  if (!request.bias_dtype || Contains(allowed, *request.bias_dtype)) return Eligibility::Yes();
  return Eligibility::No(fmt::format("the bias is {}: the kernel takes {} only",
                                     DTypeName(*request.bias_dtype), Names(allowed)));
}

}  // namespace prepack
