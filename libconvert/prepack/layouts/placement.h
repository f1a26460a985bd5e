#pragma once

// Weights stored [N, K], as panels are: only some bits may differ. Shared by the layouts that do.

#include <cstddef>
#include <cstdint>
#include <span>

#include "prepack/base/memory.h"
#include "prepack/layouts/layout.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

uint64_t RowMajorWeightBit(const PackRequest& request, uint64_t n, uint64_t k);

// Every byte XOR `mask`: its own inverse.
void PackRowMajor(const PackJob& job, std::byte mask, std::span<const std::byte> codes,
                  std::span<std::byte> packed);
void UnpackRowMajor(const PackJob& job, std::byte mask, std::span<const std::byte> packed,
                    std::span<std::byte> codes);

// The whole of a layout whose weight is the codes as they are: `weight` [N, K], cut anywhere.
constexpr PartRow PlainWeight(DType dtype) {
  return {.dtype = dtype,
          .shape = {symbol::kN, symbol::kK},
          .by_outputs = DivisionRow::Along(0, 1),
          .by_inputs = DivisionRow::Along(1, 1)};
}
TileCut CutAnywhere(const PackRequest& request);
void PackPlain(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed);
void UnpackPlain(const PackJob& job, std::span<const std::byte> packed, std::span<std::byte> codes);

// What kernels need when activations have zero points: y = s_a · (q · w) − s_a · z_a · Σ_k w, where
// the last factor is known beforehand. vLLM calls it azp_adj.

// sums[r] = Σ_k code(n0 + r, k) of signed 8-bit codes. `panel` is scratch memory.
Status SumSignedCodes(const QuantizedLinear& linear, uint64_t n0, uint64_t rows, PageBuffer& panel,
                      std::span<int32_t> sums);

// f32(sum) · scale per row, rounded once; scales [rows] are first rounded to `scale_value`.
void PackScaledSums(DType scale_value, std::span<const int32_t> sums, std::span<const float> scales,
                    std::span<std::byte> packed);

// The form that dot-product instructions read: output channels in blocks, and in a block, for every
// few bytes along K (a unit), those of all its channels side by side.
//
//     byte j of channel n of a block:  (j / unit) · width · unit + n · unit + j mod unit
//
// Channels and units that a block lacks are zero. Shared by the layouts that differ in width, unit
// and in what stands between the blocks.

struct UnitBlocks {
  uint64_t width = 32;       // output channels per block
  uint64_t unit = 4;         // bytes: 1, 2 or 4
  uint64_t units = 0;        // per channel, padding included
  uint64_t block_bytes = 0;  // from one block to the next

  uint64_t Byte(uint64_t n, uint64_t j) const {
    return n / width * block_bytes + (j / unit * width + n % width) * unit + j % unit;
  }
};

// Packs a panel into a tile whose first block begins at packed[0]. The panel begins at a multiple
// of `width` channels and `unit` bytes; at the end of K it writes the padding. Of units of four
// signed bytes, the sum of the codes of each row of the panel is added to `row_sums`, unless empty.
void PackUnits(const PackJob& job, const UnitBlocks& blocks, std::span<const std::byte> codes,
               std::span<std::byte> packed, std::span<int32_t> row_sums = {});
void UnpackUnits(const PackJob& job, const UnitBlocks& blocks, std::span<const std::byte> packed,
                 std::span<std::byte> codes);

// What a layout's row needs whose weight of whole bytes is nothing but such blocks.
template <UnitBlocks (*kBlocks)(const PackRequest& request)>
struct InUnits {
  static uint64_t WeightBit(const PackRequest& request, uint64_t n, uint64_t k) {
    return 8 * kBlocks(request).Byte(n, k * (CodeBits(request.scheme.code) / 8));
  }
  static void Pack(const PackJob& job, std::span<const std::byte> codes,
                   std::span<std::byte> packed) {
    PackUnits(job, kBlocks(job.request), codes, packed);
  }
  static void Unpack(const PackJob& job, std::span<const std::byte> packed,
                     std::span<std::byte> codes) {
    UnpackUnits(job, kBlocks(job.request), packed, codes);
  }
};

// Adds factor · the sums of a panel's rows to i32 sums at `sums`, one after the other; those of the
// panel at the start of K set them. Overflow wraps, as it does in the kernels.
void AddCodeSums(const PackJob& job, int32_t factor, std::span<const int32_t> row_sums,
                 std::span<std::byte> sums);

}  // namespace prepack
