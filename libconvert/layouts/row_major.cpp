#include "layouts/row_major.h"

#include "kernels/xor_copy.h"

namespace prepack {
namespace {

// A panel of whole rows is one piece of the tile; of a narrower one, every row is.
template <typename Move>
void ForPieces(const PackJob& job, Move move) {
  const CodeType code = job.request.scheme.code;
  const size_t row_bytes = PanelRowBytes(code, job.request.k);
  const size_t piece_bytes = PanelRowBytes(code, job.panel.cols);
  const size_t first = (job.panel.n0 - job.tile.n0) * row_bytes;
  if (job.panel.cols == job.request.k) return move(size_t{0}, first, job.panel.rows * row_bytes);
  for (uint64_t row = 0; row < job.panel.rows; ++row) {
    move(row * piece_bytes, first + row * row_bytes + PanelRowBytes(code, job.panel.k0),
         piece_bytes);
  }
}

}  // namespace

uint64_t RowMajorWeightBit(const PackRequest& request, uint64_t n, uint64_t k) {
  return (n * request.k + k) * CodeBits(request.scheme.code);
}

void PackRowMajor(const PackJob& job, std::byte mask, std::span<const std::byte> codes,
                  std::span<std::byte> packed) {
  ForPieces(job, [&](size_t of_panel, size_t of_tile, size_t bytes) {
    XorCopy(codes.subspan(of_panel, bytes), mask, packed.subspan(of_tile, bytes));
  });
}

void UnpackRowMajor(const PackJob& job, std::byte mask, std::span<const std::byte> packed,
                    std::span<std::byte> codes) {
  ForPieces(job, [&](size_t of_panel, size_t of_tile, size_t bytes) {
    XorCopy(packed.subspan(of_tile, bytes), mask, codes.subspan(of_panel, bytes));
  });
}

PartSpec PlainWeightPart(const PackRequest& request, DType dtype) {
  return {.role = PartRole::kWeight,
          .name = "weight",
          .dtype = dtype,
          .shape = {request.n, request.k},
          .by_outputs = Division::Along(0, 1),
          .by_inputs = Division::Along(1, 1)};
}

TileCut CutAnywhere(const PackRequest& /*request*/) {
  return {};
}

void PackPlain(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  PackRowMajor(job, std::byte{0}, codes, packed);
}

void UnpackPlain(const PackJob& job, std::span<const std::byte> packed,
                 std::span<std::byte> codes) {
  UnpackRowMajor(job, std::byte{0}, packed, codes);
}

}  // namespace prepack
