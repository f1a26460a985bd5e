// The bricks in kernels/ that packers are made of, per instruction set: GB/s of what is read or
// written, whichever is less (but for sums, which are small), and the ratio to memcpy of the same
// bytes in the same run. Everything stays in the L2 cache, but for nibbles that go into a wide
// matrix. The kernels and their shapes come from the list in tests/kernels/trials.h.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/trials.h"
#include "prepack/base/isa.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/memory.h"
#include "prepack/kernels/nibble_matrix.h"
#include "rates.h"

namespace {

using prepack::Buffers;
using prepack::Isa;
using prepack::RateReporter;
using prepack::Trial;

constexpr size_t kPanelBytes = size_t{128} * 1024;

const uint8_t* Codes(const std::byte* bytes) {
  return reinterpret_cast<const uint8_t*>(bytes);
}

uint8_t* Codes(std::byte* bytes) {
  return reinterpret_cast<uint8_t*>(bytes);
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

// What memory allows a kernel that goes through rows a page apart without a tile (CopyRuns):
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

// A kernel, or what is made of several.
struct Brick {
  std::string name;
  size_t bytes;   // that count as read
  size_t buffer;  // what is needed of either side
  std::function<void(const std::byte* from, std::byte* to)> run;
};

// 64 rows of nibbles in a matrix of 4096: one cache line in 64 is touched.
constexpr size_t kWide = 2048;
// As long as any brick needs its columns.
constexpr size_t kMatrixBytes = kPanelBytes / 64 * 2 * kWide;

Brick MatrixBrick(std::string name, void (*run)(const std::byte* from, std::byte* to)) {
  return {.name = std::move(name), .bytes = kPanelBytes, .buffer = kMatrixBytes, .run = run};
}

// Of what is read and what is written, the less counts, but for sums.
Brick KernelBrick(std::string name, const Trial& trial) {
  const bool sums = trial.out_bytes * 8 < trial.in_bytes;
  return {.name = std::move(name),
          .bytes = sums ? trial.in_bytes : std::min(trial.in_bytes, trial.out_bytes),
          .buffer = std::max(trial.in_bytes, trial.out_bytes),
          .run = [run = trial.run](const std::byte* from, std::byte* to) {
            run(prepack::Kernels(), Codes(from), Codes(to));
          }};
}

std::vector<Brick> KernelBricks() {
  std::vector<Brick> bricks;
  for (const prepack::KernelTrials& kernel : prepack::kKernelTrials) {
    const size_t before = bricks.size();
    for (const prepack::MeasuredShape& measured : prepack::kMeasuredShapes) {
      if (std::string_view(measured.kernel) != kernel.kernel) continue;
      bricks.push_back(KernelBrick(measured.name, kernel.make(measured.shape)));
    }
    if (bricks.size() == before) bricks.push_back(KernelBrick(kernel.kernel, kernel.make({})));
  }
  return bricks;
}

std::vector<Brick> AllBricks() {
  std::vector<Brick> bricks = KernelBricks();
  for (Brick& brick :
       std::vector<Brick>{MatrixBrick("nibbles, 16 rows", NibblesToColumns<16, 8>),
                          MatrixBrick("nibbles, 16 rows, back", NibblesToRows<16, 8>),
                          MatrixBrick("nibbles, 64 rows", NibblesToColumns<64, 32>),
                          MatrixBrick("nibbles, 64 rows, back", NibblesToRows<64, 32>),
                          MatrixBrick("nibbles, 64 rows of 4096", NibblesToColumns<64, kWide>),
                          MatrixBrick("nibbles, 64 rows of 4096, back", NibblesToRows<64, kWide>),
                          MatrixBrick("lines of 8 rows", LinesOfRows<8>),
                          MatrixBrick("lines of 8 rows, back", LinesToRows<8>),
                          MatrixBrick("lines of 16 rows", LinesOfRows<16>),
                          MatrixBrick("lines of 16 rows, back", LinesToRows<16>)}) {
    bricks.push_back(std::move(brick));
  }
  return bricks;
}

void Measure(benchmark::State& state, const Brick& brick, Isa isa) {
  Buffers buffers(brick.buffer);
  const std::byte* from = buffers.From(0, brick.buffer).data();
  std::byte* to = buffers.To(0, brick.buffer).data();
  const prepack::ScopedIsa scope(isa);
  for (auto _ : state) {
    brick.run(from, to);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) *
                          static_cast<int64_t>(brick.bytes));
}

std::string NameOf(const Brick& brick, Isa isa) {
  return fmt::format("{} {}", brick.name, prepack::IsaName(isa));
}

void Register(const Brick& brick, Isa isa) {
  benchmark::RegisterBenchmark(NameOf(brick, isa).c_str(),
                               [=](benchmark::State& state) { Measure(state, brick, isa); });
}

void PrintTable(const std::vector<Brick>& bricks, const Brick& copy_brick,
                const RateReporter& rates) {
  fmt::print("{:<32}{:<11}{:>8}{:>11}\n", "brick", "isa", "GB/s", "of memcpy");
  const double copy = rates.Best(NameOf(copy_brick, Isa::kScalar));
  fmt::print("{:<32}{:<11}{:>8.1f}{:>11.2f}\n", copy_brick.name, "", copy, 1.0);
  for (const Brick& brick : bricks) {
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
  const Brick copy = MatrixBrick("memcpy", Copy);
  const std::vector<Brick> bricks = AllBricks();
  Register(copy, Isa::kScalar);
  for (const Brick& brick : bricks) {
    for (const Isa isa : prepack::SupportedIsas()) Register(brick, isa);
  }
  RateReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  PrintTable(bricks, copy, reporter);
  return 0;
}
