#pragma once

// Rows of bytes in another order: what puts the codes of act-order weights in the order of their
// groups.

#include <cstddef>
#include <cstdint>

namespace prepack {

// So many rows are looked up together, as words of a byte each.
inline constexpr size_t kSortedRows = 8;

// sorted[row · count + i] = from[row · count + places[i]], of up to kSortedRows rows that lie side
// by side. Places are below `count`; `words` has room for `count`.
using SortBytesFn = void(const int8_t* from, size_t rows, size_t count, const uint32_t* places,
                         uint64_t* words, int8_t* sorted);

}  // namespace prepack
