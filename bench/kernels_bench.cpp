// Packing and unpacking of codes, per layout and instruction set, in GB/s of codes,
// and the ratio to memcpy of the same bytes in the same run.
//
// Two sizes: `panel` packs one panel over and over, so that everything stays in the L2 cache, which
// is what a kernel can do; `module` goes through a 4096 × 4096 module panel by panel, which is what
// a conversion asks of it, bound by memory.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/isa.h"
#include "prepack/layouts/fingerprint.h"
#include "prepack/layouts/table.h"
#include "prepack/model/panel_shape.h"
#include "rates.h"

namespace {

using prepack::Buffers;
using prepack::Isa;
using prepack::Layout;
using prepack::PackRequest;
using prepack::RateReporter;

constexpr uint64_t kChannels = 4096;
// What tiles may hold more than their codes: sums and padding.
constexpr size_t kTileSlack = 1 << 20;

// The first kind of module that the layout takes.
PackRequest Module(const Layout& layout) {
  for (const prepack::Scheme& scheme : prepack::ProbeSchemes(kChannels, kChannels, 128)) {
    PackRequest request;
    request.scheme = scheme;
    request.n = kChannels;
    request.k = kChannels;
    prepack::SetModuleKind(layout, request);
    if (layout.eligible(request).ok) return request;
  }
  return {};
}

// Tiles and panels as a conversion cuts them, over the first `rows` rows.
prepack::TileShape Tiles(const Layout& layout, const PackRequest& request) {
  const prepack::TileCut cut = layout.cut(request);
  const prepack::CodeType code = request.scheme.code;
  if (cut.by_inputs) {
    const uint64_t cols = std::lcm(prepack::kPanelColsMultiple, cut.cols);
    return {.rows = request.n,
            .cols = cols,
            .panel_rows = prepack::PanelRowsFor(code, cols, cut.rows),
            .panel_cols = cols};
  }
  const uint64_t rows = prepack::PanelRowsFor(code, kChannels, cut.rows);
  return {.rows = rows, .cols = kChannels, .panel_rows = rows, .panel_cols = kChannels};
}

// Memcpy of the codes of so many rows of the layout's module, in pieces of a panel.
void Copy(benchmark::State& state, const Layout& layout, uint64_t rows) {
  const size_t bytes = rows * prepack::PanelRowBytes(Module(layout).scheme.code, kChannels);
  const size_t piece = std::min<size_t>(bytes, prepack::kPanelBytes);
  Buffers buffers(bytes);
  for (auto _ : state) {
    for (size_t at = 0; at < bytes; at += piece) {
      std::memcpy(buffers.To(at, piece).data(), buffers.From(at, piece).data(), piece);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

// A panel of a module's codes, the tile that it belongs to, and where both lie in the buffers.
struct Piece {
  prepack::PanelRange tile;
  prepack::PanelRange panel;
  size_t codes_at;
  size_t codes_bytes;
  size_t packed_at;
  size_t packed_bytes;
};

// Tile by tile. Every tile has its own place in the module; a panel of the source is copied from no
// one: it is where the reader would have put it.
std::vector<Piece> Pieces(const Layout& layout, const PackRequest& request) {
  const prepack::TileShape shape = Tiles(layout, request);
  const prepack::TileGrid grid(request.n, request.k, shape);
  std::vector<Piece> pieces;
  size_t codes_at = 0;
  size_t packed_at = 0;
  for (size_t i = 0; i < grid.size(); ++i) {
    const prepack::PanelRange tile = grid.At(i);
    const size_t packed_bytes = prepack::PlacedBytes(layout.place_weight(request, tile));
    static_cast<void>(prepack::ForPanels(tile, shape, [&](const prepack::PanelRange& panel) {
      const size_t codes_bytes = prepack::PanelBytes(request.scheme.code, panel);
      pieces.push_back({tile, panel, codes_at, codes_bytes, packed_at, packed_bytes});
      codes_at += codes_bytes;
      return prepack::Status();
    }));
    packed_at += packed_bytes;
  }
  return pieces;
}

// Packs or unpacks a module. Where its pieces lie is known beforehand: small tiles would spend a
// tenth of the time on that.
template <typename Work>
void ForPieces(benchmark::State& state, const Layout& layout, Isa isa, uint64_t rows,
               const Work& work) {
  const prepack::ScopedIsa scope(isa);
  PackRequest request = Module(layout);
  request.n = rows;
  const std::vector<Piece> pieces = Pieces(layout, request);
  const std::vector<uint8_t> zero_points(rows * request.groups(), 8);
  const std::vector<float> scales(rows * request.groups(), 0.01F);
  const size_t bytes = rows * prepack::PanelRowBytes(request.scheme.code, kChannels);
  Buffers buffers(2 * bytes + kTileSlack);
  for (auto _ : state) {
    for (const Piece& piece : pieces) {
      work(prepack::PackJob{.request = request,
                            .tile = piece.tile,
                            .panel = piece.panel,
                            .zero_points = zero_points,
                            .scales = scales},
           buffers, piece);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

void Pack(benchmark::State& state, const Layout& layout, Isa isa, uint64_t rows) {
  ForPieces(state, layout, isa, rows,
            [&](const prepack::PackJob& job, Buffers& buffers, const Piece& piece) {
              layout.pack_codes(job, buffers.From(piece.codes_at, piece.codes_bytes),
                                buffers.To(piece.packed_at, piece.packed_bytes));
            });
}

void Unpack(benchmark::State& state, const Layout& layout, Isa isa, uint64_t rows) {
  ForPieces(state, layout, isa, rows,
            [&](const prepack::PackJob& job, Buffers& buffers, const Piece& piece) {
              layout.unpack_codes(job, buffers.From(piece.packed_at, piece.packed_bytes),
                                  buffers.To(piece.codes_at, piece.codes_bytes));
            });
}

// How many rows of a module to go through: one panel, or all.
constexpr std::array<std::string_view, 2> kSizes = {"panel", "module"};

uint64_t RowsOf(std::string_view size, const Layout& layout) {
  constexpr uint64_t kWidestBlock = 64;
  if (size == "module") return kChannels;
  return prepack::PanelRowsFor(Module(layout).scheme.code, kChannels, kWidestBlock);
}

void Register(std::string_view size, const Layout& layout) {
  const uint64_t rows = RowsOf(size, layout);
  const std::string name = fmt::format("{} {}", size, layout.id);
  benchmark::RegisterBenchmark((name + " memcpy").c_str(),
                               [=, &layout](auto& state) { Copy(state, layout, rows); });
  for (const Isa isa : prepack::SupportedIsas()) {
    const std::string of_isa = fmt::format("{} {}", name, prepack::IsaName(isa));
    benchmark::RegisterBenchmark((of_isa + " pack").c_str(),
                                 [=, &layout](auto& state) { Pack(state, layout, isa, rows); });
    benchmark::RegisterBenchmark((of_isa + " unpack").c_str(),
                                 [=, &layout](auto& state) { Unpack(state, layout, isa, rows); });
  }
}

void PrintTable(const RateReporter& rates) {
  fmt::print("{:<8}{:<25}{:<11}{:>12}{:>10}{:>11}{:>12}{:>11}\n", "data", "layout", "isa",
             "memcpy GB/s", "pack GB/s", "of memcpy", "unpack GB/s", "of memcpy");
  for (const std::string_view size : kSizes) {
    for (const Layout& layout : prepack::AllLayouts()) {
      const std::string name = fmt::format("{} {}", size, layout.id);
      const double copy = rates.Best(name + " memcpy");
      if (copy == 0) continue;  // filtered out
      for (const Isa isa : prepack::SupportedIsas()) {
        const std::string of_isa = fmt::format("{} {}", name, prepack::IsaName(isa));
        const double pack = rates.Best(of_isa + " pack");
        const double unpack = rates.Best(of_isa + " unpack");
        fmt::print("{:<8}{:<25}{:<11}{:>12.1f}{:>10.1f}{:>11.2f}{:>12.1f}{:>11.2f}\n", size,
                   layout.id, prepack::IsaName(isa), copy, pack, pack / copy, unpack,
                   unpack / copy);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const std::string_view size : kSizes) {
    for (const Layout& layout : prepack::AllLayouts()) Register(size, layout);
  }
  RateReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  PrintTable(reporter);
  return 0;
}
