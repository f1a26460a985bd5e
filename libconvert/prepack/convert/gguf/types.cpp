#include "prepack/convert/gguf/types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "prepack/base/parallel.h"
#include "prepack/convert/gguf/integers.h"
#include "prepack/convert/gguf/pack_blocks.h"
#include "prepack/convert/gguf/pack_k_quants.h"
#include "prepack/gguf/blocks.h"

namespace prepack::gguf {
namespace {

using enum GgmlType;

// The smallest first, of equals those without superblocks. Q4_1 and Q5_1 round minima: --exact
// takes the next larger one.
constexpr std::array kTypesOfCodes = {kQ2_K, kQ3_K, kQ4_0, kQ4_K, kQ4_1,  kQ5_0,
                                      kQ5_K, kQ5_1, kQ6_K, kQ8_0, kMXFP4, kNVFP4};

bool HasSuperblocks(GgmlType type) {
  const IntegerRange* range = RangeOf(type);
  return range != nullptr && range->has_superblocks();
}

bool HoldsCodes(GgmlType type, const Scheme& scheme) {
  const IntegerRange* range = RangeOf(type);
  return range != nullptr && WhyNotIn(*range, scheme).empty();
}

// What one would have expected to hold the codes, for the reason.
GgmlType NearestType(const Scheme& scheme) {
  if (scheme.code == CodeType::kF4E2M1) return scheme.group_size == 16 ? kNVFP4 : kMXFP4;
  return scheme.bits <= 4 ? kQ4_0 : kQ8_0;
}

std::string WhyNone(const QuantizedLinear& linear) {
  const Scheme& scheme = linear.scheme();
  if (linear.reordered()) {
    return "the module has activation order: its groups are not contiguous, and blocks of ggml are";
  }
  if (scheme.code == CodeType::kF8E4M3) return "ggml has no type for FP8";
  return WhyNotHeld(NearestType(scheme), scheme, linear.k());
}

// Strikes those types with superblocks that do not hold the scales of the module.
Status StrikeByScales(const QuantizedLinear& linear, std::vector<GgmlType>& types) {
  const uint64_t groups = linear.groups();
  const uint64_t step = std::max<uint64_t>(1, (uint64_t{1} << 16) / groups);
  std::vector<float> scales;
  std::vector<uint8_t> zero_points;
  for (uint64_t n0 = 0; n0 < linear.n() && std::ranges::any_of(types, HasSuperblocks); n0 += step) {
    const uint64_t rows = std::min(step, linear.n() - n0);
    scales.resize(rows * groups);
    zero_points.resize(rows * groups);
    PREPACK_TRY(linear.ReadScales(n0, rows, scales));
    PREPACK_TRY(linear.ReadZeroPoints(n0, rows, zero_points));
    for (uint64_t row = 0; row < rows; ++row) {
      const CodeRow numbers{.codes = {},
                            .scales = std::span(scales).subspan(row * groups, groups),
                            .zero_points = std::span(zero_points).subspan(row * groups, groups)};
      std::erase_if(types, [&](GgmlType type) {
        return HasSuperblocks(type) &&
               FirstNotHeld(*RangeOf(type), linear.scheme(), linear.k(), numbers).has_value();
      });
    }
  }
  return {};
}

std::string WhyNotByScales(GgmlType type) {
  return fmt::format("the scales are no multiples of one f16 in each block of 256, as {} has them",
                     InfoOf(type).name);
}

// Why the smallest type that has the codes is not the first of those that hold the module.
std::string WhyLarger(const QuantizedLinear& linear, GgmlType first) {
  for (const GgmlType type : kTypesOfCodes) {
    if (type == first) break;
    if (!HasSuperblocks(type) || !HoldsCodes(type, linear.scheme())) continue;
    std::string why = WhyNotHeld(type, linear.scheme(), linear.k());
    return why.empty() ? WhyNotByScales(type) : why;
  }
  return "";
}

}  // namespace

bool HoldsModule(GgmlType type, const QuantizedLinear& linear) {
  return !linear.reordered() && WhyNotHeld(type, linear.scheme(), linear.k()).empty();
}

Result<HoldingTypes> TypesThatHold(const QuantizedLinear& linear, bool exact) {
  HoldingTypes found;
  for (const GgmlType type : kTypesOfCodes) {
    if (exact && HasF16Minimum(type)) continue;
    if (HoldsModule(type, linear)) found.types.push_back(type);
  }
  // Behind a type that needs no look at the scales, those that do have no point.
  auto sure = std::ranges::find_if_not(found.types, HasSuperblocks);
  if (sure != found.types.end()) {
    found.types.erase(std::remove_if(sure, found.types.end(), HasSuperblocks), found.types.end());
  }
  const std::vector<GgmlType> candidates = found.types;
  PREPACK_TRY(StrikeByScales(linear, found.types));
  if (!found.types.empty()) {
    found.why = WhyLarger(linear, found.types.front());
  } else {
    found.why = candidates.empty() ? WhyNone(linear) : WhyNotByScales(candidates.front());
  }
  return found;
}

std::vector<std::string_view> WhatRounds(GgmlType type, const QuantizedLinear& linear) {
  if (type == kF32) return {};
  if (!HoldsModule(type, linear)) {
    return {type == kQ8_0 ? std::string_view("quantized") : std::string_view("weights")};
  }
  std::vector<std::string_view> rounds;
  const IntegerRange* range = RangeOf(type);
  if (range == nullptr || range->has_superblocks()) return rounds;
  if (linear.stored_scale_dtype() != DType::kF16) rounds.emplace_back("scales");
  if (HasF16Minimum(type)) rounds.emplace_back("minima");
  return rounds;
}

Status ChooseTypes(const PlanOptions& options, Sources& sources) {
  std::mutex mutex;
  const auto choose = [&](size_t index, unsigned /*worker*/) -> Status {
    Source& source = sources.sources[index];
    for (const QuantizedLinear* linear : source.modules) {
      PREPACK_TRY_ASSIGN(const HoldingTypes held, TypesThatHold(*linear, options.exact));
      if (held.types.empty()) {
        const std::scoped_lock lock(mutex);
        sources.not_held.emplace(linear->module(), NotHeld{.why = held.why});
      }
      if (linear == source.modules.front()) {
        source.types = held.types;
        source.why = held.why;
      }
      std::erase_if(source.types,
                    [&](GgmlType type) { return std::ranges::count(held.types, type) == 0; });
    }
    return {};
  };
  PREPACK_TRY(ParallelFor(sources.sources.size(), ThreadCount(0), choose));
  if (sources.not_held.empty() || options.if_not_held != IfNotHeld::kRefuse) return {};
  const auto& [module, first] = *sources.not_held.begin();
  Status status = Unsupported(fmt::format("module {}", module), first.why);
  if (sources.not_held.size() > 1) {
    status = std::move(status).Found(
        fmt::format("{} modules that no type of ggml holds", sources.not_held.size()));
  }
  return std::move(status).Hint(
      "--fallback dequantize stores them as floats (BF16, or F32 with --exact), and --fallback "
      "q8_0 "
      "quantizes them to 8 bits");
}

}  // namespace prepack::gguf
