#include "prepack/verify/decoded_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/parallel.h"
#include "prepack/verify/truth.h"

namespace prepack {
namespace {

// Weights that are decoded at a time: so few that the steps of both stay in the L2 cache, but whole
// blocks of scales, words of zero points, and lines of memory where output channels lie side by
// side. Groups in any order are found by looking at all input channels.
constexpr uint64_t kDecodedChannels = 512;
constexpr uint64_t kDecodedInputs = 1024;
static_assert(kDecodedInputs % kSecondInputsUnit == 0);

uint64_t InputsAtATime(const PackRequest& request) {
  return request.reordered ? request.k : std::min(request.k, kDecodedInputs);
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

// Elements [begin, end) of both. Not a number is unlike everything. They are counted in numbers of
// their size, and not searched for one that differs: so the loop takes several at a time.
template <typename Count, typename T>
bool AreSame(const std::vector<T>& a, const std::vector<T>& b, uint64_t begin, uint64_t end) {
  static_assert(sizeof(Count) == sizeof(T));
  Count different = 0;
  for (uint64_t i = begin; i < end; ++i) different |= a[i] == b[i] ? Count{0} : Count{1};
  return different == 0;
}

// Are the weights of a channel the same because their steps and scales are? Where groups are.
bool IsSameChannel(const DecodedRows& expected, const DecodedRows& found, uint64_t row) {
  const uint64_t groups = expected.groups();
  const std::span scales = std::span(expected.scales).subspan(row * groups, groups);
  const bool are_finite = std::ranges::all_of(scales, [](double x) { return std::isfinite(x); });
  if (!are_finite ||
      !AreSame<uint64_t>(expected.scales, found.scales, row * groups, (row + 1) * groups)) {
    return false;
  }
  const uint64_t begin = row * expected.inputs();
  const uint64_t end = begin + expected.inputs();
  if (expected.small.empty()) {
    return AreSame<uint32_t>(expected.steps, found.steps, begin, end);
  }
  return std::memcmp(&expected.small[begin], &found.small[begin], end - begin) == 0;
}

// Both have steps of one kind. Output channels begin with n0, input channels with k0.
void CompareRows(const DecodedRows& expected, const DecodedRows& found, uint64_t n0, uint64_t k0,
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
      differences.Add(n0 + row, k0 + k, is, wanted);
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
  const uint64_t inputs = InputsAtATime(request);
  const uint64_t slabs = CeilDiv(request.k, inputs);
  std::vector<std::pair<DecodedRows, DecodedRows>> buffers(threads);
  std::vector<DecodedDifferences> of_worker(threads);
  Status status = ParallelFor(
      CeilDiv(request.n, kDecodedChannels) * slabs, threads,
      [&](size_t index, unsigned worker) -> Status {
        if (CancellationRequested()) return Interrupted(packed.name());
        const uint64_t n0 = index / slabs * kDecodedChannels;
        const uint64_t rows = std::min(kDecodedChannels, request.n - n0);
        const uint64_t k0 = index % slabs * inputs;
        const InputSlab slab{.k0 = k0, .inputs = std::min(inputs, request.k - k0)};
        auto& [expected, found] = buffers[worker];
        for (DecodedRows* decoded : {&expected, &found}) {
          decoded->takes_small = true;
          decoded->takes_codes = true;
        }
        PREPACK_TRY(DecodeSourceRows(source, packed, n0, rows, expected, slab));
        PREPACK_TRY(output.DecodeSlab(NameInOutput(packed), request.k, slab, n0, rows, found));
        if (expected.small.empty() != found.small.empty() || expected.values != found.values) {
          expected.Widen();
          found.Widen();
        }
        CompareRows(expected, found, n0, k0, Tolerance(packed), of_worker[worker]);
        progress.Add(rows * slab.inputs);
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
  const uint64_t rows = std::min(kDecodedChannels, request.n);
  const uint64_t inputs = InputsAtATime(request);
  // Steps, the words and codes that they are made of, scales, and the group of each input channel.
  const uint64_t decoded =
      rows * (inputs * (sizeof(float) + 4) + request.groups() * 3 * sizeof(double)) +
      inputs * 3 * sizeof(uint64_t);
  return {.shared = 2 * request.n * sizeof(double), .per_thread = 2 * decoded};
}

}  // namespace prepack
