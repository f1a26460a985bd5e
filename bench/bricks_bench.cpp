// The bricks in kernels/ that packers are made of, per instruction set: GB/s of what is read (which
// for all but the sums is as much as is written), and the ratio to memcpy of the same bytes in the
// same run. Everything stays in the L2 cache, but for nibbles that go into a wide matrix.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string>

#include "prepack/base/isa.h"
#include "prepack/kernels/nibble_halves.h"
#include "prepack/kernels/nibble_matrix.h"
#include "prepack/kernels/nibble_pairs.h"
#include "prepack/kernels/nibble_transpose.h"
#include "prepack/kernels/row_sums.h"
#include "prepack/kernels/runs.h"
#include "prepack/kernels/unit_transpose.h"
#include "rates.h"

namespace {

using prepack::Buffers;
using prepack::Isa;
using prepack::RateReporter;

constexpr size_t kPanelBytes = size_t{128} * 1024;
constexpr size_t kBlockCols = 128;  // of blocks with sums of their own

const uint8_t* Codes(const std::byte* bytes) {
  return reinterpret_cast<const uint8_t*>(bytes);
}

uint8_t* Codes(std::byte* bytes) {
  return reinterpret_cast<uint8_t*>(bytes);
}

template <size_t kUnit, size_t kRows>
void UnitsToColumns(const std::byte* from, std::byte* to) {
  const size_t cols = kPanelBytes / kRows / kUnit;
  prepack::TransposeUnitsFor(kUnit)(from, cols * kUnit, kRows, cols, to, kRows * kUnit);
}

template <size_t kUnit, size_t kRows>
void UnitsToRows(const std::byte* from, std::byte* to) {
  const size_t cols = kPanelBytes / kRows / kUnit;
  prepack::TransposeUnitsFor(kUnit)(from, kRows * kUnit, cols, kRows, to, cols * kUnit);
}

// Pairs are written and read with the sums behind each block, which come on top.
constexpr size_t kPairRowBytes = kPanelBytes / prepack::kPairRows;
constexpr size_t kPairBlocks = 2 * kPairRowBytes / kBlockCols;

void RowsToPairs(const std::byte* from, std::byte* to) {
  prepack::NibblePairsFor().rows_to_pairs(Codes(from), kPairRowBytes, kBlockCols, kPairBlocks,
                                          Codes(to));
}

void PairsToRows(const std::byte* from, std::byte* to) {
  prepack::NibblePairsFor().pairs_to_rows(Codes(from), kBlockCols, kPairBlocks, kPairRowBytes,
                                          Codes(to));
}

template <size_t kRowBytes>
void RowsToHalves(const std::byte* from, std::byte* to) {
  constexpr size_t kBlock = prepack::kHalvesRows * kRowBytes;
  for (size_t at = 0; at + kBlock <= kPanelBytes; at += kBlock) {
    prepack::NibbleHalvesFor().rows_to_halves(Codes(from + at), kRowBytes, 2 * kRowBytes,
                                              Codes(to + at));
  }
}

template <size_t kRowBytes>
void HalvesToRows(const std::byte* from, std::byte* to) {
  constexpr size_t kBlock = prepack::kHalvesRows * kRowBytes;
  for (size_t at = 0; at + kBlock <= kPanelBytes; at += kBlock) {
    prepack::NibbleHalvesFor().halves_to_rows(Codes(from + at), 2 * kRowBytes, kRowBytes,
                                              Codes(to + at));
  }
}

void SumBytes(const std::byte* from, std::byte* to) {
  constexpr size_t kRows = 32;
  constexpr size_t kCols = kPanelBytes / kRows;
  prepack::SumRowsFor()(reinterpret_cast<const int8_t*>(from), kCols, kRows, kCols,
                        reinterpret_cast<int32_t*>(to));
}

void SummedUnits(const std::byte* from, std::byte* to) {
  constexpr size_t kRows = 32;
  static std::array<int32_t, kRows> sums;
  sums = {};  // they would overflow
  prepack::UnitTransposeFor().summed_words(from, kPanelBytes / kRows, kRows,
                                           kPanelBytes / kRows / 4, to, 4 * kRows, sums.data());
}

template <size_t kRows, size_t kColumnBytes>
void NibblesToColumns(const std::byte* from, std::byte* to) {
  const size_t row_bytes = kPanelBytes / kRows;
  prepack::NibbleRowsToColumns(Codes(from), row_bytes, kRows, 2 * row_bytes, 0, Codes(to),
                               kColumnBytes);
}

template <size_t kRows, size_t kColumnBytes>
void NibblesToRows(const std::byte* from, std::byte* to) {
  const size_t row_bytes = kPanelBytes / kRows;
  prepack::NibbleColumnsToRows(Codes(from), kColumnBytes, kRows, 2 * row_bytes, 0, Codes(to),
                               row_bytes);
}

// What memory allows a kernel that goes through rows a page apart without a tile (kernels/runs.h):
// a cache line of each of kRows rows at a time, moved and nothing else.
constexpr size_t kPageBytes = 4096;
constexpr size_t kLine = prepack::kLineBytes;

template <size_t kRows>
void LinesOfRows(const std::byte* from, std::byte* to) {
  for (size_t at = 0; at < kPanelBytes; at += kRows * kPageBytes) {
    for (size_t line = 0; line < kPageBytes; line += kLine) {
      prepack::CopyRuns<kLine>(from + at + line, kPageBytes, kRows, to + at + kRows * line, kLine);
    }
  }
}

template <size_t kRows>
void LinesToRows(const std::byte* from, std::byte* to) {
  for (size_t at = 0; at < kPanelBytes; at += kRows * kPageBytes) {
    for (size_t line = 0; line < kPageBytes; line += kLine) {
      prepack::CopyRuns<kLine>(from + at + kRows * line, kLine, kRows, to + at + line, kPageBytes);
    }
  }
}

void Copy(const std::byte* from, std::byte* to) {
  std::memcpy(to, from, kPanelBytes);
}

struct Brick {
  const char* name;
  void (*run)(const std::byte* from, std::byte* to);
};

// 64 rows of nibbles in a matrix of 4096: one cache line in 64 is touched.
constexpr size_t kWide = 2048;

constexpr Brick kCopy = {"memcpy", Copy};
constexpr std::array kBricks = {
    Brick{"units of 1, 32 rows", UnitsToColumns<1, 32>},
    Brick{"units of 1, 32 rows, back", UnitsToRows<1, 32>},
    Brick{"units of 2, 32 rows", UnitsToColumns<2, 32>},
    Brick{"units of 2, 32 rows, back", UnitsToRows<2, 32>},
    Brick{"units of 4, 32 rows", UnitsToColumns<4, 32>},
    Brick{"units of 4, 32 rows, back", UnitsToRows<4, 32>},
    Brick{"units of 1, 64 rows", UnitsToColumns<1, 64>},
    Brick{"units of 1, 64 rows, back", UnitsToRows<1, 64>},
    Brick{"units of 4, 64 rows", UnitsToColumns<4, 64>},
    Brick{"units of 4, 64 rows, back", UnitsToRows<4, 64>},
    Brick{"nibble pairs", RowsToPairs},
    Brick{"nibble pairs, back", PairsToRows},
    Brick{"nibble halves", RowsToHalves<1024>},
    Brick{"nibble halves, back", HalvesToRows<1024>},
    Brick{"nibble halves, 4096 apart", RowsToHalves<4096>},
    Brick{"nibble halves, 4096 apart, back", HalvesToRows<4096>},
    Brick{"sums of bytes", SumBytes},
    Brick{"units of 4, 32 rows, summed", SummedUnits},
    Brick{"nibbles, 16 rows", NibblesToColumns<16, 8>},
    Brick{"nibbles, 16 rows, back", NibblesToRows<16, 8>},
    Brick{"nibbles, 64 rows", NibblesToColumns<64, 32>},
    Brick{"nibbles, 64 rows, back", NibblesToRows<64, 32>},
    Brick{"nibbles, 64 rows of 4096", NibblesToColumns<64, kWide>},
    Brick{"nibbles, 64 rows of 4096, back", NibblesToRows<64, kWide>},
    Brick{"lines of 8 rows", LinesOfRows<8>},
    Brick{"lines of 8 rows, back", LinesToRows<8>},
    Brick{"lines of 16 rows", LinesOfRows<16>},
    Brick{"lines of 16 rows, back", LinesToRows<16>},
};

// As long as any brick needs its columns.
constexpr size_t kBufferBytes = kPanelBytes / 64 * 2 * kWide;

void Measure(benchmark::State& state, const Brick& brick, Isa isa) {
  Buffers buffers(kBufferBytes);
  const std::byte* from = buffers.From(0, kBufferBytes).data();
  std::byte* to = buffers.To(0, kBufferBytes).data();
  const prepack::ScopedIsa scope(isa);
  for (auto _ : state) {
    brick.run(from, to);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) *
                          static_cast<int64_t>(kPanelBytes));
}

std::string NameOf(const Brick& brick, Isa isa) {
  return fmt::format("{} {}", brick.name, prepack::IsaName(isa));
}

void Register(const Brick& brick, Isa isa) {
  benchmark::RegisterBenchmark(NameOf(brick, isa).c_str(),
                               [=](benchmark::State& state) { Measure(state, brick, isa); });
}

void PrintTable(const RateReporter& rates) {
  fmt::print("{:<32}{:<11}{:>8}{:>11}\n", "brick", "isa", "GB/s", "of memcpy");
  const double copy = rates.Best(NameOf(kCopy, Isa::kScalar));
  fmt::print("{:<32}{:<11}{:>8.1f}{:>11.2f}\n", kCopy.name, "", copy, 1.0);
  for (const Brick& brick : kBricks) {
    for (const Isa isa : prepack::SupportedIsas()) {
      const double rate = rates.Best(NameOf(brick, isa));
      if (rate == 0) continue;
      fmt::print("{:<32}{:<11}{:>8.1f}{:>11.2f}\n", brick.name, prepack::IsaName(isa), rate,
                 rate / copy);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  Register(kCopy, Isa::kScalar);
  for (const Brick& brick : kBricks) {
    for (const Isa isa : prepack::SupportedIsas()) Register(brick, isa);
  }
  RateReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  PrintTable(reporter);
  return 0;
}
