#ifndef PREPACK_INSPECT_PACKED_ROWS_H_
#define PREPACK_INSPECT_PACKED_ROWS_H_

// Output channels [n0, n0 + rows) of a packed module in the canonical layout, wherever they begin:
// layouts are unpacked by whole strips, and what was not asked for is cut off.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "verify/packed_folder.h"

namespace prepack {

// [rows, K] as a panel, input channels as the kernel counts them.
Status ReadPackedCodes(const PackedModule& packed, uint64_t n0, uint64_t rows,
                       std::vector<std::byte>& codes);
// [rows, G]; ones where the layout keeps no scales.
Status ReadPackedScales(const PackedModule& packed, uint64_t n0, uint64_t rows,
                        std::vector<float>& scales);
Status ReadPackedZeroPoints(const PackedModule& packed, uint64_t n0, uint64_t rows,
                            std::vector<uint8_t>& zero_points);

}  // namespace prepack

#endif  // PREPACK_INSPECT_PACKED_ROWS_H_
