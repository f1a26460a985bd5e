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
  const uint32_t bits = CodeBits(request.scheme.code);
  if (bits == 4) return Eligibility::Yes();
  return Eligibility::No(fmt::format("the codes have {} bits: the kernel reads 4-bit codes", bits));
}

Eligibility NoActivationQuantization(const PackRequest& request) {
  if (request.scheme.activations == ActivationQuantization::kNone) return Eligibility::Yes();
  return Eligibility::No("the checkpoint quantizes activations: the kernel takes them in 16 bits");
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
