#ifndef PREPACK_LAYOUTS_ROW_MAJOR_H_
#define PREPACK_LAYOUTS_ROW_MAJOR_H_

// Weights stored [N, K], as panels are: only some bits may differ. Shared by the layouts that do.

#include <cstdint>
#include <span>

#include "layouts/layout.h"

namespace prepack {

uint64_t RowMajorWeightBit(const PackRequest& request, uint64_t n, uint64_t k);

// Every byte XOR `mask`: its own inverse.
void PackRowMajor(const PackJob& job, std::byte mask, std::span<const std::byte> codes,
                  std::span<std::byte> packed);
void UnpackRowMajor(const PackJob& job, std::byte mask, std::span<const std::byte> packed,
                    std::span<std::byte> codes);

// The whole of a layout whose weight is the codes as they are: `weight` [N, K], cut anywhere.
PartSpec PlainWeightPart(const PackRequest& request, DType dtype);
TileCut CutAnywhere(const PackRequest& request);
void PackPlain(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed);
void UnpackPlain(const PackJob& job, std::span<const std::byte> packed, std::span<std::byte> codes);

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_ROW_MAJOR_H_
