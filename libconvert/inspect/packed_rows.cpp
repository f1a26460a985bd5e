#include "inspect/packed_rows.h"

#include <algorithm>
#include <span>

#include "base/checked.h"

namespace prepack {
namespace {

// Reads whole strips of `multiple` channels by `read(n0, rows, out)`, a row of which is
// `row_size` elements.
template <typename Element, typename Read>
Status ReadStrips(const PackedModule& packed, uint64_t multiple, uint64_t n0, uint64_t rows,
                  uint64_t row_size, std::vector<Element>& out, const Read& read) {
  const uint64_t first = n0 / multiple * multiple;
  const uint64_t end = std::min(packed.request().n, CeilDiv(n0 + rows, multiple) * multiple);
  out.resize((end - first) * row_size);
  Status status = read(first, end - first, std::span(out));
  if (!status.ok()) return status;
  const auto before = static_cast<ptrdiff_t>((n0 - first) * row_size);
  out.erase(out.begin(), out.begin() + before);
  out.resize(rows * row_size);
  return {};
}

}  // namespace

Status ReadPackedCodes(const PackedModule& packed, uint64_t n0, uint64_t rows,
                       std::vector<std::byte>& codes) {
  const PackRequest& request = packed.request();
  PageBuffer buffer;
  return ReadStrips(packed, packed.layout().cut(request).rows, n0, rows,
                    PanelRowBytes(request.scheme.code, request.k), codes,
                    [&](uint64_t first, uint64_t count, std::span<std::byte> out) {
                      const InputSlab all{.k0 = 0, .inputs = request.k};
                      return packed.ReadCodes(first, count, all, buffer, out);
                    });
}

Status ReadPackedScales(const PackedModule& packed, uint64_t n0, uint64_t rows,
                        std::vector<float>& scales) {
  const PackRequest& request = packed.request();
  if (packed.layout().unpack_scales == nullptr) {
    scales.assign(rows * request.groups(), 1.0F);
    return {};
  }
  PageBuffer buffer;
  return ReadStrips(packed, packed.layout().cut(request).strip_rows, n0, rows, request.groups(),
                    scales, [&](uint64_t first, uint64_t count, std::span<float> out) {
                      return packed.ReadScales(first, count, buffer, out);
                    });
}

Status ReadPackedZeroPoints(const PackedModule& packed, uint64_t n0, uint64_t rows,
                            std::vector<uint8_t>& zero_points) {
  const PackRequest& request = packed.request();
  PageBuffer buffer;
  return ReadStrips(packed, packed.layout().cut(request).strip_rows, n0, rows, request.groups(),
                    zero_points, [&](uint64_t first, uint64_t count, std::span<uint8_t> out) {
                      return packed.ReadZeroPoints(first, count, buffer, out);
                    });
}

}  // namespace prepack
