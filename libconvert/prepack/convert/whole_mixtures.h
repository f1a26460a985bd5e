#pragma once

// Runtimes that read all experts of a layer or none, and all in one layout
// (Layout::whole_mixtures), and hold those of each NUMA node apart (packed/node_shares.h).

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/plan.h"
#include "prepack/convert/scheme_choice.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

// The mixtures that are not packed, and why. Where several layouts could take whole ones, that of
// most mixtures does. Empty for a target without such layouts.
Result<std::map<std::string, MixtureFault, std::less<>>> FindMixtureFaults(
    const Checkpoint& checkpoint, std::span<const QuantizedLinear* const> modules,
    const PlanOptions& options, SchemeChooser& schemes, const Plan& plan);

// Replaces the experts of the other mixtures by their shares, which the plan then owns. kUsage
// where channels do not divide.
Status CutMixtures(uint64_t nodes, std::vector<const QuantizedLinear*>& modules, Plan& plan);

// kUsage for a --numa that is out of range, or for a target without such layouts.
Status CheckNodesAreForTarget(const PlanOptions& options, const Target& target);

}  // namespace prepack
