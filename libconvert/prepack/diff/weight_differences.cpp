#include "prepack/diff/weight_differences.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "prepack/base/decibel.h"
#include "prepack/kernels/kernels.h"

namespace prepack {
namespace {

// Weights that are judged at a time: what is rare is looked for one by one only in a block that has
// it.
constexpr uint64_t kBlock = 256;

// |a − b|; NaN counts as infinitely far away.
double Distance(const WorstElement& element) {
  const double distance =
      std::abs(static_cast<double>(element.a.value) - static_cast<double>(element.b.value));
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

bool IsWorse(const WorstElement& left, const WorstElement& right) {
  return std::tuple(-Distance(left), left.n, left.k) <
         std::tuple(-Distance(right), right.n, right.k);
}

void KeepIfWorst(const WorstElement& element, std::vector<WorstElement>& worst) {
  if (worst.size() == kWorstElements && !IsWorse(element, worst.back())) return;
  worst.insert(std::ranges::upper_bound(worst, element, IsWorse), element);
  if (worst.size() > kWorstElements) worst.pop_back();
}

// Zeros of either sign count as equal, because the sign comes from the scale.
bool IsEqual(float a, float b) {
  return SameBits(a, b) || a == b;
}

double SumOf(const DifferenceLanes::Lanes& lanes) {
  return std::accumulate(lanes.begin(), lanes.end(), 0.0);
}

// Some weights of both sides, and where the first of them lies.
struct Block {
  std::span<const float> a;
  std::span<const float> b;
  uint64_t first = 0;
  uint64_t k = 0;

  WorstElement Element(uint64_t i) const {
    return {.n = (first + i) / k,
            .k = (first + i) % k,
            .a = {.value = a[i], .stored = {}},
            .b = {.value = b[i], .stored = {}}};
  }
};

// The figures of a block without its largest ones. Both sides have a length that fills the lanes:
// the last block of a matrix is padded with zeros, which count for nothing.
DifferenceLanes Judge(const Block& block, const DifferenceBounds& bounds) {
  DifferenceLanes lanes;
  const uint64_t whole = block.a.size() / kDifferenceLanes;
  Kernels().add_differences(block.a.data(), block.b.data(), whole, bounds, lanes);
  const uint64_t rest = block.a.size() % kDifferenceLanes;
  if (rest == 0) return lanes;
  std::array<float, kDifferenceLanes> a{};
  std::array<float, kDifferenceLanes> b{};
  std::ranges::copy(block.a.last(rest), a.begin());
  std::ranges::copy(block.b.last(rest), b.begin());
  Kernels().add_differences(a.data(), b.data(), 1, bounds, lanes);
  return lanes;
}

// One by one, in order.
void FindLargest(const Block& block, WeightDifferences& differences) {
  for (uint64_t i = 0; i < block.a.size(); ++i) {
    if (IsEqual(block.a[i], block.b[i])) continue;
    const WorstElement element = block.Element(i);
    const double distance = Distance(element);
    const double larger = std::max(std::abs(static_cast<double>(block.a[i])),
                                   std::abs(static_cast<double>(block.b[i])));
    differences.max_absolute = std::max(differences.max_absolute, distance);
    differences.max_relative = std::max(differences.max_relative, distance / larger);
    KeepIfWorst(element, differences.worst);
  }
}

// The same figures of a block with an infinity or a NaN.
void AddOneByOne(const Block& block, double tolerance, WeightDifferences& differences) {
  for (uint64_t i = 0; i < block.a.size(); ++i) {
    const double a = block.a[i];
    const double b = block.b[i];
    differences.signal += a * a;
    if (IsEqual(block.a[i], block.b[i])) continue;
    const double distance = Distance(block.Element(i));
    ++differences.unequal;
    if (!(distance <= tolerance * std::max(std::abs(a), std::abs(b)))) ++differences.beyond;
    differences.noise += distance * distance;
  }
  FindLargest(block, differences);
}

void AddBlock(const Block& block, double tolerance, WeightDifferences& differences) {
  const DifferenceLanes lanes =
      Judge(block, {.tolerance = tolerance, .relative = differences.max_relative});
  const double noise = SumOf(lanes.noise);
  if (!std::isfinite(noise)) return AddOneByOne(block, tolerance, differences);
  differences.signal += SumOf(lanes.signal);
  differences.noise += noise;
  differences.unequal += static_cast<uint64_t>(SumOf(lanes.unequal));
  differences.beyond += static_cast<uint64_t>(SumOf(lanes.beyond));
  const double least =
      differences.worst.size() < kWorstElements ? 0 : Distance(differences.worst.back());
  if (std::ranges::max(lanes.largest) > least || SumOf(lanes.relative) > 0) {
    FindLargest(block, differences);
  }
}

}  // namespace

std::string_view DiffVerdictName(DiffVerdict verdict) {
  switch (verdict) {
    case DiffVerdict::kIdentical:
      return "identical";
    case DiffVerdict::kEqual:
      return "equal";
    case DiffVerdict::kDifferent:
      return "different";
    case DiffVerdict::kShapeDiffers:
      return "shape differs";
    case DiffVerdict::kOnlyInA:
      return "only in A";
    case DiffVerdict::kOnlyInB:
      return "only in B";
    case DiffVerdict::kNotCompared:
      return "not compared";
  }
  return "";
}

bool IsSame(DiffVerdict verdict) {
  return verdict == DiffVerdict::kIdentical || verdict == DiffVerdict::kEqual ||
         verdict == DiffVerdict::kNotCompared;
}

Tone ToneOf(DiffVerdict verdict) {
  if (verdict == DiffVerdict::kNotCompared) return Tone::kUnsure;
  return IsSame(verdict) ? Tone::kGood : Tone::kBad;
}

void WeightDifferences::Add(std::span<const float> a, std::span<const float> b, uint64_t first,
                            uint64_t k, double tolerance) {
  elements += a.size();
  for (uint64_t at = 0; at < a.size(); at += kBlock) {
    const uint64_t count = std::min<uint64_t>(kBlock, a.size() - at);
    AddBlock({.a = a.subspan(at, count), .b = b.subspan(at, count), .first = first + at, .k = k},
             tolerance, *this);
  }
}

void WeightDifferences::Merge(const WeightDifferences& other) {
  elements += other.elements;
  unequal += other.unequal;
  beyond += other.beyond;
  other_scales |= other.other_scales;
  max_absolute = std::max(max_absolute, other.max_absolute);
  max_relative = std::max(max_relative, other.max_relative);
  signal += other.signal;
  noise += other.noise;
  for (const WorstElement& element : other.worst) KeepIfWorst(element, worst);
}

DiffVerdict WeightDifferences::Verdict() const {
  if (beyond != 0) return DiffVerdict::kDifferent;
  return unequal == 0 && !other_scales ? DiffVerdict::kIdentical : DiffVerdict::kEqual;
}

std::optional<double> WeightDifferences::SqnrDb() const {
  return Decibel(signal, noise);
}

}  // namespace prepack
