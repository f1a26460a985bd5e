// Decoding of codes, per format and instruction set: from the bytes of the checkpoint to panels of
// the canonical layout, on one thread, in GB/s of stored codes, and the ratio to memcpy of the same
// bytes in the same run.
//
// `read` is QuantizedLinear::ReadCodes as a conversion calls it: the file is in the page cache, and
// every byte is first copied out of it. `pread` is that copy alone, in pieces of the same size.
//
//     bench_decode [N K [FORMAT]]   sizes; 4096 × 4096 and 14336 × 4096 when none are given.
//     FORMAT:
//                                   only those whose name has this in it

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "prepack/base/isa.h"
#include "prepack/formats/format.h"
#include "prepack/model/panel_shape.h"
#include "sample_checkpoint.h"
#include "scratch_folder.h"

namespace {

using prepack::Checkpoint;
using prepack::QuantizedLinear;
using prepack::QuantizedModel;
using prepack::Result;
using prepack::Status;

// Best of so many runs, each at least this long.
constexpr int kRuns = 7;
constexpr double kSeconds = 0.1;

// Processor time of this thread: what other programs take of a core does not count.
double Now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// GB/s of work that handles `bytes` bytes, over kSeconds.
double Rate(uint64_t bytes, const std::function<void()>& work) {
  const double begin = Now();
  double seconds = 0;
  uint64_t count = 0;
  for (; seconds < kSeconds; ++count) {
    work();
    seconds = Now() - begin;
  }
  return static_cast<double>(bytes * count) / seconds / 1e9;
}

// The best of each, measured in turns: what else the machine does changes from second to second.
template <size_t kCount>
std::array<double, kCount> BestRates(uint64_t bytes,
                                     const std::array<std::function<void()>, kCount>& works) {
  for (const auto& work : works) work();
  std::array<double, kCount> best{};
  for (int run = 0; run < kRuns; ++run) {
    for (size_t i = 0; i < kCount; ++i) best[i] = std::max(best[i], Rate(bytes, works[i]));
  }
  return best;
}

[[noreturn]] void Fail(const Status& status) {
  fmt::print(stderr, "error: {}\n", status.ToString());
  std::exit(prepack::ExitCode(status));
}

template <typename T>
T Value(Result<T> result) {
  if (!result.ok()) Fail(result.status());
  return *std::move(result);
}

// A conversion to a layout that takes 32 output channels at a time, as most do.
constexpr uint64_t kRowsMultiple = 32;

void ReadAll(const QuantizedLinear& linear, std::vector<std::byte>& panel) {
  const prepack::TileShape shape =
      prepack::TileShapeFor(linear, {.rows = kRowsMultiple, .cols = 1, .strip_rows = 1});
  const prepack::TileGrid grid(linear.n(), linear.k(), shape);
  for (size_t tile = 0; tile < grid.size(); ++tile) {
    Status status = prepack::ForPanels(grid.At(tile), shape, [&](const prepack::PanelRange& range) {
      panel.resize(prepack::PanelBytes(linear.scheme().code, range));
      return linear.ReadCodes(range, panel);
    });
    if (!status.ok()) Fail(status);
  }
}

void Measure(const prepack::bench::SampleFormat& format, const Checkpoint& checkpoint, uint64_t n,
             uint64_t k) {
  const QuantizedModel model = Value(prepack::ReadQuantizedModel(checkpoint));
  const QuantizedLinear& linear = *model.modules.front();
  const uint64_t bytes = n * k * format.bits / 8;

  // Half a page between source and target: with equal offsets in their pages some CPUs copy several
  // times slower (rep movsb of Zen 3 and 4), and the ratios would flatter us.
  std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes + 2048);
  std::vector<std::byte> panel(prepack::kPanelBytes);
  const prepack::StoredTensor* codes = checkpoint.Find(linear.source_tensors().front());
  const auto copy = [&] { std::memcpy(to.data() + 2048, from.data(), bytes); };
  const auto pread = [&] {
    panel.resize(prepack::kPanelBytes);
    for (uint64_t at = 0; at < bytes; at += panel.size()) {
      const auto piece = std::span(panel).first(std::min<uint64_t>(panel.size(), bytes - at));
      if (Status status = checkpoint.Read(*codes, at, piece); !status.ok()) Fail(status);
    }
  };
  const auto read = [&] { ReadAll(linear, panel); };
  const auto [memcpy_rate, pread_rate, read_rate] = BestRates<3>(bytes, {copy, pread, read});
  fmt::print("{:<26}{:>6} × {:<6}{:<9}{:>8.1f}{:>8.1f}{:>8.1f}{:>11.2f}\n", format.name, n, k,
             prepack::IsaName(prepack::ProcessIsa()), memcpy_rate, pread_rate, read_rate,
             read_rate / memcpy_rate);
}

void Measure(const prepack::bench::SampleFormat& format, uint64_t n, uint64_t k) {
  const prepack::bench::ScratchFolder scratch;
  if (Status status = prepack::bench::WriteSample(scratch.path(), format, n, k, 1); !status.ok())
    Fail(status);
  const Checkpoint checkpoint = Value(Checkpoint::Open(scratch.path()));
  Measure(format, checkpoint, n, k);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::pair<uint64_t, uint64_t>> sizes = {{4096, 4096}, {14336, 4096}};
  if (argc >= 3)
    sizes = {{std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[2], nullptr, 10)}};
  const std::string wanted = argc == 4 ? argv[3] : "";
  fmt::print("{:<26}{:>6}   {:<6}{:<9}{:>8}{:>8}{:>8}{:>11}\n", "GB/s of stored codes", "N", "K",
             "isa", "memcpy", "pread", "read", "of memcpy");
  for (const auto& [n, k] : sizes) {
    for (const prepack::bench::SampleFormat& format : prepack::bench::SampleFormats()) {
      if (format.name.find(wanted) != std::string::npos) Measure(format, n, k);
    }
  }
  return 0;
}
