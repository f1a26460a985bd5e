#pragma once

// Large numbers as people read them, numbers out of text, and what people may have meant.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace prepack {

// "512 B", "1.5 MB", "4.0 GB": decimal units, as disks and `ls --si` have them.
std::string HumanBytes(uint64_t bytes);
// "999", "1.5 k", "8.0 G".
std::string HumanCount(uint64_t count);
// "1 module", "2 modules".
std::string Plural(size_t count, std::string_view what);

// "Did you mean NAME?" for the name of `known` that is nearest to `wanted` by edit distance, or
// empty when none is near (a third of its length, at least 2 edits).
std::string DidYouMean(std::string_view wanted, std::span<const std::string> known);

// The number that the whole text is, in digits of `base`; nullopt for anything else, a sign
// included.
std::optional<uint64_t> ParseUint(std::string_view text, int base = 10);

// Without white space at its ends.
std::string_view Trimmed(std::string_view text);

// ASCII lower case; all keywords of quantization configs are ASCII.
std::string LowerCase(std::string_view text);

}  // namespace prepack
