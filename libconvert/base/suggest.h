#ifndef PREPACK_BASE_SUGGEST_H_
#define PREPACK_BASE_SUGGEST_H_

#include <span>
#include <string>
#include <string_view>

namespace prepack {

// "Did you mean NAME?" for the name of `known` that is nearest to `wanted` by edit distance, or
// empty when none is near (a third of its length, at least 2 edits).
std::string DidYouMean(std::string_view wanted, std::span<const std::string> known);

}  // namespace prepack

#endif  // PREPACK_BASE_SUGGEST_H_
