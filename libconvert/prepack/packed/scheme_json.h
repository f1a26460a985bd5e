#pragma once

// Schemes and memory descriptors in the manifest and in reports.

#include <cstdint>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/layouts/blocked_desc.h"
#include "prepack/model/scheme.h"

namespace prepack {

// {"name": "w4a16", "code": "u4", "bits": 4, "granularity": …, "activations": … or null}
Json SchemeJson(const Scheme& scheme);
// The inverse, for a module of n by k weights. kMalformed when a member is missing or impossible,
// kUnsupported when a word is unknown; `where` names the place.
Result<Scheme> ReadScheme(const Json& json, uint64_t n, uint64_t k, std::string_view where);

// Of activations alone; null: they are not quantized.
Json ActivationsJson(const ActivationScheme& activations);
Result<ActivationScheme> ReadActivationScheme(const Json& json, std::string_view where);

Json BlockedDescJson(const BlockedDesc& desc);
// The inverse; checked by CheckBlockedDesc.
Result<BlockedDesc> ReadBlockedDesc(const Json& json, uint64_t n, uint64_t k,
                                    std::string_view where);

// What oneDNN was asked, and which oneDNN answered.
Json OneDnnOriginJson(const OneDnnOrigin& origin);
Result<OneDnnOrigin> ReadOneDnnOrigin(const Json& json, std::string_view where);

}  // namespace prepack
