// Packing and unpacking of codes, per layout and instruction set, in GB/s of codes (two per byte),
// and the ratio to memcpy of the same bytes in the same run.
//
// Two sizes: `panel` packs one panel over and over, so that everything stays in the L2 cache, which
// is what a kernel can do; `module` goes through a 4096 × 4096 module panel by panel, which is what
// a conversion asks of it, bound by memory.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "canonical/panel_shape.h"
#include "layouts/table.h"
#include "rates.h"

namespace {

using prepack::Buffers;
using prepack::Isa;
using prepack::Layout;
using prepack::PackRequest;
using prepack::RateReporter;

constexpr uint64_t kChannels = 4096;

PackRequest Module() {
  PackRequest request;
  request.scheme = {
      .granularity = prepack::Granularity::kGroup, .group_size = 128, .symmetric = true};
  request.n = kChannels;
  request.k = kChannels;
  return request;
}

uint64_t PanelRows(const Layout& layout) {
  return prepack::PanelRowsFor(Module().scheme.code, kChannels, layout.rows_multiple);
}

// All of K for so many bytes.
prepack::StripPanel Panel(size_t bytes) {
  return {.rows = bytes / (kChannels / 2), .k0 = 0, .cols = kChannels};
}

// Calls work(offset, bytes) for every panel of the rows that the benchmark goes through.
template <typename Work>
void ForPanels(benchmark::State& state, uint64_t rows, uint64_t panel_rows, const Work& work) {
  const uint64_t row_bytes = kChannels / 2;
  for (auto _ : state) {
    for (uint64_t n = 0; n < rows; n += panel_rows) {
      work(n * row_bytes, std::min(panel_rows, rows - n) * row_bytes);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) *
                          static_cast<int64_t>(rows * row_bytes));
}

void Copy(benchmark::State& state, uint64_t rows, uint64_t panel_rows) {
  Buffers buffers(rows * kChannels / 2);
  ForPanels(state, rows, panel_rows, [&](size_t offset, size_t bytes) {
    std::memcpy(buffers.To(offset, bytes).data(), buffers.From(offset, bytes).data(), bytes);
  });
}

void Pack(benchmark::State& state, const Layout& layout, Isa isa, uint64_t rows) {
  const PackRequest request = Module();
  Buffers buffers(rows * kChannels / 2);
  ForPanels(state, rows, PanelRows(layout), [&](size_t offset, size_t bytes) {
    layout.pack_codes(request, isa, Panel(bytes), buffers.From(offset, bytes),
                      buffers.To(offset, bytes));
  });
}

void Unpack(benchmark::State& state, const Layout& layout, Isa isa, uint64_t rows) {
  const PackRequest request = Module();
  Buffers buffers(rows * kChannels / 2);
  ForPanels(state, rows, PanelRows(layout), [&](size_t offset, size_t bytes) {
    layout.unpack_codes(request, isa, Panel(bytes), buffers.From(offset, bytes),
                        buffers.To(offset, bytes));
  });
}

struct Size {
  std::string name;
  uint64_t rows;
};

std::vector<Size> Sizes() {
  return {{"panel", PanelRows(prepack::AllLayouts().front())}, {"module", kChannels}};
}

void RegisterAll() {
  for (const Size& size : Sizes()) {
    const uint64_t panel = Sizes().front().rows;
    benchmark::RegisterBenchmark((size.name + " memcpy").c_str(),
                                 [=](benchmark::State& state) { Copy(state, size.rows, panel); });
    for (const Layout& layout : prepack::AllLayouts()) {
      for (const Isa isa : prepack::SupportedIsas()) {
        const std::string name =
            fmt::format("{} {} {}", size.name, layout.id, prepack::IsaName(isa));
        benchmark::RegisterBenchmark((name + " pack").c_str(), [=, &layout](auto& state) {
          Pack(state, layout, isa, size.rows);
        });
        benchmark::RegisterBenchmark((name + " unpack").c_str(), [=, &layout](auto& state) {
          Unpack(state, layout, isa, size.rows);
        });
      }
    }
  }
}

void PrintTable(const RateReporter& rates) {
  fmt::print("{:<8}{:<18}{:<9}{:>10}{:>11}{:>12}{:>11}\n", "data", "layout", "isa", "pack GB/s",
             "of memcpy", "unpack GB/s", "of memcpy");
  for (const Size& size : Sizes()) {
    const double copy = rates.Best(size.name + " memcpy");
    fmt::print("{:<8}{:<18}{:<9}{:>10.1f}{:>11.2f}\n", size.name, "memcpy", "", copy, 1.0);
    for (const Layout& layout : prepack::AllLayouts()) {
      for (const Isa isa : prepack::SupportedIsas()) {
        const std::string name =
            fmt::format("{} {} {}", size.name, layout.id, prepack::IsaName(isa));
        const double pack = rates.Best(name + " pack");
        const double unpack = rates.Best(name + " unpack");
        fmt::print("{:<8}{:<18}{:<9}{:>10.1f}{:>11.2f}{:>12.1f}{:>11.2f}\n", size.name, layout.id,
                   prepack::IsaName(isa), pack, pack / copy, unpack, unpack / copy);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  RegisterAll();
  RateReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  PrintTable(reporter);
  return 0;
}
