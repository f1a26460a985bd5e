#pragma once

// Modules that every layout is tested with: a layout in the table is tested by the generic tests
// without another line.

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <vector>

#include "prepack/layouts/fingerprint.h"
#include "prepack/layouts/table.h"
#include "prepack/model/panel_shape.h"

namespace prepack::testing {

// The descriptor with these inner blocks, as small as it can be. `n_outside`: blocks along K follow
// each other. `sums`: with both kinds.
inline BlockedDesc MakeDesc(uint64_t k, uint64_t n, const InnerBlocks& inner, bool n_outside,
                            bool sums) {
  BlockedDesc desc{.dims = {k, n}, .padded_dims = {}, .strides = {}, .inner = inner};
  for (const uint32_t dim : {0U, 1U}) {
    desc.padded_dims[dim] = CeilDiv(desc.dims[dim], desc.Block(dim)) * desc.Block(dim);
  }
  const uint64_t block = desc.BlockElements();
  const uint32_t inside = n_outside ? 0 : 1;
  desc.strides[inside] = block;
  desc.strides[1 - inside] = desc.padded_dims[inside] / desc.Block(inside) * block;
  desc.s8s8_compensation = sums;
  desc.zero_point_compensation = sums;
  return desc;
}

// Forms that a primitive might ask for: other blocks, other orders, with and without sums.
inline std::vector<BlockedDesc> OtherDescs(uint64_t k, uint64_t n) {
  return {
      PlainDesc(k, n),
      Ba16a64b4aDesc(k, n),
      MakeDesc(k, n, {}, true, false),                       // [N, K]
      MakeDesc(k, n, {{.dim = 1, .size = 16}}, true, true),  // Ba16b
      MakeDesc(k, n, {{.dim = 0, .size = 16}, {.dim = 1, .size = 32}, {.dim = 0, .size = 4}}, false,
               false),
      MakeDesc(k, n, {{.dim = 0, .size = 8}, {.dim = 1, .size = 48}, {.dim = 0, .size = 4}}, true,
               true),
      MakeDesc(k, n, {{.dim = 1, .size = 4}, {.dim = 0, .size = 2}, {.dim = 1, .size = 3}}, false,
               true),
  };
}

inline void AddIfTaken(const Layout& layout, const PackRequest& request,
                       std::vector<PackRequest>& requests) {
  if (!layout.eligible(request).ok) return;
  requests.push_back(request);
  if (layout.id != "onednn/w8a8" || request.n * request.k > 100'000) return;
  for (const BlockedDesc& desc : OtherDescs(request.k, request.n)) {
    requests.push_back(request);
    requests.back().weights_desc = desc;
  }
}

// Shapes with odd multiples, primes and single blocks; all schemes and groupings of them; all
// activation dtypes; exact scales and the runtime's; with activation order. Only what the layout
// takes.
inline std::vector<PackRequest> RequestsFor(const Layout& layout) {
  std::vector<PackRequest> requests;
  for (const uint64_t n : {1U, 7U, 32U, 34U, 96U, 160U, 2080U}) {
    for (const uint64_t k : {1U, 8U, 9U, 32U, 40U, 64U, 128U, 224U, 384U, 992U, 1152U, 4096U}) {
      for (const uint64_t group_size : {uint64_t{2}, uint64_t{8}, uint64_t{32}, uint64_t{96}, k}) {
        const bool large = n * k > 1'000'000;
        if (large && (group_size == 2 || k == 4096)) continue;  // nothing new, only slow
        if (k % group_size != 0) continue;
        for (const Scheme& scheme : ProbeSchemes(n, k, group_size)) {
          // Schemes without groups of this size come once.
          const bool groups =
              scheme.code == CodeType::kU4 && scheme.granularity != Granularity::kTensor;
          if (!groups && group_size != k) continue;
          for (const DType activations : {DType::kBF16, DType::kF16, DType::kF32}) {
            if (activations != DType::kBF16 && n != 7 && n != 96) continue;
            PackRequest request;
            request.scheme = scheme;
            request.n = n;
            request.k = k;
            request.activation_dtype = activations;
            request.reordered = k == 224;
            SetModuleKind(layout, request);
            request.exact_scales = n == 96;
            AddIfTaken(layout, request, requests);
          }
        }
      }
    }
  }
  return requests;
}

inline std::string Name(const Layout& layout, const PackRequest& request) {
  return fmt::format("{} N {} K {} {} {}", layout.id, request.n, request.k,
                     DescribeScheme(request.scheme),
                     request.weights_desc ? request.weights_desc->Name() : "");
}

// Small tiles and panels, so that there are several of each.
inline TileShape SmallTiles(const Layout& layout, const PackRequest& request, bool strips) {
  const TileCut cut = layout.cut(request);
  const uint64_t cols = std::min(request.k, std::lcm(uint64_t{256}, cut.cols));
  if (cut.by_inputs && !strips) {
    return {.rows = request.n, .cols = cols, .panel_rows = 2 * cut.rows, .panel_cols = cols};
  }
  return {.rows = 3 * cut.rows, .cols = request.k, .panel_rows = cut.rows, .panel_cols = cols};
}

// Copies packed bytes to their place in a part.
inline void Place(const Placement& placement, const std::vector<std::byte>& packed,
                  std::vector<std::byte>& part) {
  auto from = packed.begin();
  for (const Runs& runs : placement) {
    for (uint64_t run = 0; run < runs.count; ++run) {
      const auto to = static_cast<std::ptrdiff_t>(runs.offset + run * runs.stride);
      std::copy_n(from, runs.bytes, part.begin() + to);
      from += static_cast<std::ptrdiff_t>(runs.bytes);
    }
  }
}

// The codes of a panel out of those of the whole module.
inline std::vector<std::byte> PanelOf(const PackRequest& request,
                                      const std::vector<std::byte>& codes,
                                      const PanelRange& range) {
  const CodeType code = request.scheme.code;
  const uint64_t row_bytes = PanelRowBytes(code, request.k);
  std::vector<std::byte> panel;
  for (uint64_t row = 0; row < range.rows; ++row) {
    const auto begin = codes.begin() + static_cast<std::ptrdiff_t>((range.n0 + row) * row_bytes +
                                                                   range.k0 * CodeBits(code) / 8);
    panel.insert(panel.end(), begin,
                 begin + static_cast<std::ptrdiff_t>(PanelRowBytes(code, range.cols)));
  }
  return panel;
}

}  // namespace prepack::testing
