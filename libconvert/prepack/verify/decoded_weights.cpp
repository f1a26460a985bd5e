#include "prepack/verify/decoded_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/parallel.h"
#include "prepack/verify/truth.h"

namespace prepack {
namespace {

// Output channels that are decoded at a time: some MiB of floats, but whole blocks of scales and
// words of zero points.
constexpr uint64_t kDecodedWeights = uint64_t{1} << 20;
constexpr uint64_t kChannelUnit = 128;

uint64_t ChannelsAtATime(uint64_t k) {
  return std::max<uint64_t>(1, kDecodedWeights / k / kChannelUnit) * kChannelUnit;
}

// The largest difference that counts as none, relative to the weight.
double Tolerance(const PackedModule& packed) {
  return packed.layout().scales.two_levels ? kReciprocalRounding : 0;
}

// Scales are those that libraries multiply with, of 24 bits, also where a checkpoint stores what to
// divide by.
double Weight(float step, double scale) {
  return static_cast<double>(step) * static_cast<double>(static_cast<float>(scale));
}

// Elements [begin, end) of both. Not a number is unlike everything. They are counted, and not
// searched for one that differs: so the loop takes several at a time.
template <typename T>
bool AreSame(const std::vector<T>& a, const std::vector<T>& b, uint64_t begin, uint64_t end) {
  uint64_t same = 0;
  for (uint64_t i = begin; i < end; ++i) same += a[i] == b[i] ? 1U : 0U;
  return same == end - begin;
}

// Are the weights of a channel the same because their steps and scales are? Where groups are.
bool IsSameChannel(const DecodedRows& expected, const DecodedRows& found, uint64_t row) {
  const uint64_t groups = expected.groups();
  const std::span scales = std::span(expected.scales).subspan(row * groups, groups);
  const bool are_finite = std::ranges::all_of(scales, [](double x) { return std::isfinite(x); });
  if (!are_finite || !AreSame(expected.scales, found.scales, row * groups, (row + 1) * groups)) {
    return false;
  }
  const uint64_t begin = row * expected.inputs();
  const uint64_t end = begin + expected.inputs();
  return expected.small.empty() ? AreSame(expected.steps, found.steps, begin, end)
                                : AreSame(expected.small, found.small, begin, end);
}

// Both have steps of one kind.
void CompareRows(const DecodedRows& expected, const DecodedRows& found, uint64_t n0,
                 double tolerance, DecodedDifferences& differences) {
  const bool alike = expected.group_of == found.group_of && expected.groups() == found.groups();
  for (uint64_t row = 0; row < expected.rows(); ++row) {
    if (alike && IsSameChannel(expected, found, row)) continue;
    const double* wanted_scales = &expected.scales[row * expected.groups()];
    const double* found_scales = &found.scales[row * found.groups()];
    for (uint64_t k = 0; k < expected.inputs(); ++k) {
      const double wanted = Weight(expected.Step(row, k), wanted_scales[expected.group_of[k]]);
      const double is = Weight(found.Step(row, k), found_scales[found.group_of[k]]);
      // Not a number is unlike everything.
      if (std::abs(is - wanted) <= tolerance * std::abs(wanted)) continue;
      differences.Add(n0 + row, k, is, wanted);
    }
  }
}

Status CompareBias(const PackedModule& packed, const SecondDecoder& source,
                   const SecondDecoder& output, DecodedDifferences& differences) {
  std::vector<double> expected;
  PREPACK_TRY(ReadSourceBias(source, packed, expected));
  std::vector<double> found;
  if (output.HasBias(NameInOutput(packed))) {
    PREPACK_TRY(output.ReadBias(NameInOutput(packed), found));
  }
  if (found != expected) differences.other = "the bias differs from the source's";
  return {};
}

Status CompareInput(const PackedModule& packed, const SecondDecoder& source,
                    const SecondDecoder& output, DecodedDifferences& differences) {
  if (!symbol::kStaticActivations.Of(packed.request())) return {};
  PREPACK_TRY_ASSIGN(const DecodedInput expected, ReadSourceInput(source, packed));
  PREPACK_TRY_ASSIGN(const DecodedInput found, output.ReadInput(NameInOutput(packed)));
  if (found == expected) return {};
  differences.other = fmt::format(
      "the scale or zero point of its inputs is not the source's (found {} and {}, "
      "expected {} and {})",
      found.scale, found.zero_point, expected.scale, expected.zero_point);
  return {};
}

}  // namespace

void DecodedDifferences::Add(uint64_t channel, uint64_t input, double is, double wanted) {
  const bool first = weights++ == 0 || std::pair(channel, input) < std::pair(n, k);
  if (!first) return;
  n = channel;
  k = input;
  found = is;
  expected = wanted;
}

void CompareWeights(std::span<const double> expected, std::span<const double> found, uint64_t k,
                    uint64_t n0, DecodedDifferences& differences) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (found[i] != expected[i]) differences.Add(n0 + i / k, i % k, found[i], expected[i]);
  }
}

DecodedDifferences Together(std::span<const DecodedDifferences> all) {
  DecodedDifferences together;
  for (const DecodedDifferences& own : all) {
    if (own.weights == 0) continue;
    const uint64_t before = together.weights;
    together.Add(own.n, own.k, own.found, own.expected);
    together.weights = before + own.weights;
  }
  return together;
}

const std::string& NameInOutput(const PackedModule& packed) {
  return packed.expert() ? packed.members().front().module : packed.name();
}

std::string DecodedDifferences::Describe() const {
  if (weights == 0) return other;
  return fmt::format(
      "{} weights decode to other numbers than the source's, the first at output channel {}, input "
      "channel {} (found {}, expected {})",
      weights, n, k, found, expected);
}

Result<DecodedDifferences> CompareDecoded(const PackedModule& packed, const SecondDecoder& source,
                                          const SecondDecoder& output, unsigned threads,
                                          Progress& progress) {
  const PackRequest& request = packed.request();
  const uint64_t channels = ChannelsAtATime(request.k);
  std::vector<std::pair<DecodedRows, DecodedRows>> buffers(threads);
  std::vector<DecodedDifferences> of_worker(threads);
  Status status = ParallelFor(
      CeilDiv(request.n, channels), threads, [&](size_t index, unsigned worker) -> Status {
        if (CancellationRequested()) return Interrupted(packed.name());
        const uint64_t n0 = index * channels;
        const uint64_t rows = std::min(channels, request.n - n0);
        auto& [expected, found] = buffers[worker];
        expected.takes_small = true;
        found.takes_small = true;
        PREPACK_TRY(DecodeSourceRows(source, packed, n0, rows, expected));
        PREPACK_TRY(output.Decode(NameInOutput(packed), request.k, n0, rows, found));
        if (expected.small.empty() != found.small.empty()) {
          expected.Widen();
          found.Widen();
        }
        CompareRows(expected, found, n0, Tolerance(packed), of_worker[worker]);
        progress.Add(rows * request.k);
        return {};
      });
  DecodedDifferences all = Together(of_worker);
  if (status.ok()) status = CompareBias(packed, source, output, all);
  if (status.ok()) status = CompareInput(packed, source, output, all);
  if (!status.ok()) return status;
  return all;
}

MemoryNeed MemoryOfDecoding(const PackedModule& packed) {
  const PackRequest& request = packed.request();
  const uint64_t rows = std::min(ChannelsAtATime(request.k), request.n);
  // Steps, the bytes that they are decoded from, scales, and the group of each input channel.
  const uint64_t decoded =
      rows * (request.k * (sizeof(float) + 4) + request.groups() * 2 * sizeof(double)) +
      request.k * 3 * sizeof(uint64_t);
  return {.shared = 2 * request.n * sizeof(double), .per_thread = 2 * decoded};
}

}  // namespace prepack
