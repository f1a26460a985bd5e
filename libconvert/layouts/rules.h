#ifndef PREPACK_LAYOUTS_RULES_H_
#define PREPACK_LAYOUTS_RULES_H_

// Eligibility rules that several layouts share. Each gives a sentence with numbers, or nothing.

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "layouts/layout.h"

namespace prepack {

// The first of the verdicts that is a no, else yes.
Eligibility AllOf(std::initializer_list<Eligibility> verdicts);

Eligibility FourBitCodes(const PackRequest& request);
Eligibility NoActivationQuantization(const PackRequest& request);
// One scale per output channel, or per output channel and group.
Eligibility ScalesPerChannelOrGroup(const PackRequest& request);
// The groups of the checkpoint lie over its input channels in their natural order.
Eligibility NaturalInputOrder(const PackRequest& request);
// "N = 7 is not a multiple of 32: the kernel works on …". `why` follows the colon.
Eligibility MultipleOf(std::string_view name, uint64_t value, uint64_t unit, std::string_view why);
Eligibility GroupsDivideK(const PackRequest& request);
Eligibility ActivationsOneOf(const PackRequest& request, std::initializer_list<DType> allowed);
// A module without a bias always passes.
Eligibility BiasOneOf(const PackRequest& request, std::initializer_list<DType> allowed);

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_RULES_H_
