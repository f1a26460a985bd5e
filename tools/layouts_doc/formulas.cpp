#include "formulas.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

namespace prepack::layouts_doc {
namespace {

struct Formula {
  std::string_view text;
  uint64_t (*value)(const PackRequest& r);
};

uint64_t RoundedUp(uint64_t value, uint64_t unit) {
  return CeilDiv(value, unit) * unit;
}

// Input channels per block, where a layout has blocks along K.
uint64_t BlockInputs(const PackRequest& r) {
  uint64_t b = std::min<uint64_t>(r.scheme.group_size, 128);
  while (b > 1 && r.k % b != 0) b /= 2;
  return b;
}

// The first that fits is taken: simple ones first.
constexpr std::array kDimensions = {
    Formula{"1", [](const PackRequest&) { return uint64_t{1}; }},
    Formula{"32", [](const PackRequest&) { return uint64_t{32}; }},
    Formula{"64", [](const PackRequest&) { return uint64_t{64}; }},
    Formula{"N", [](const PackRequest& r) { return r.n; }},
    Formula{"K", [](const PackRequest& r) { return r.k; }},
    Formula{"G", [](const PackRequest& r) { return r.groups(); }},
    Formula{"N/2", [](const PackRequest& r) { return r.n / 2; }},
    Formula{"N/8", [](const PackRequest& r) { return r.n / 8; }},
    Formula{"N/16", [](const PackRequest& r) { return r.n / 16; }},
    Formula{"N/32", [](const PackRequest& r) { return r.n / 32; }},
    Formula{"⌈N/r⌉", [](const PackRequest& r) { return CeilDiv(r.n, r.scheme.scale_rows); }},
    Formula{"K/2", [](const PackRequest& r) { return r.k / 2; }},
    Formula{"K/8", [](const PackRequest& r) { return r.k / 8; }},
    Formula{"2K", [](const PackRequest& r) { return 2 * r.k; }},
    Formula{"K + 4", [](const PackRequest& r) { return r.k + 4; }},
    Formula{"K/b", [](const PackRequest& r) { return r.k / BlockInputs(r); }},
    Formula{"b", BlockInputs},
    Formula{"16b + 128", [](const PackRequest& r) { return 16 * BlockInputs(r) + 128; }},
    Formula{"⌈K/128⌉", [](const PackRequest& r) { return CeilDiv(r.k, 128); }},
    Formula{"N16 · (K4 + 4)",
            [](const PackRequest& r) { return RoundedUp(r.n, 16) * (RoundedUp(r.k, 4) + 4); }},
    Formula{"N64 · (K64 + 4)",
            [](const PackRequest& r) { return RoundedUp(r.n, 64) * (RoundedUp(r.k, 64) + 4); }},
    Formula{"N64 · (K64 + 8)",
            [](const PackRequest& r) { return RoundedUp(r.n, 64) * (RoundedUp(r.k, 64) + 8); }},
};

constexpr std::array kUnits = {
    Formula{"1", [](const PackRequest&) { return uint64_t{1}; }},
    Formula{"2", [](const PackRequest&) { return uint64_t{2}; }},
    Formula{"8", [](const PackRequest&) { return uint64_t{8}; }},
    Formula{"16", [](const PackRequest&) { return uint64_t{16}; }},
    Formula{"32", [](const PackRequest&) { return uint64_t{32}; }},
    Formula{"r", [](const PackRequest& r) { return r.scheme.scale_rows; }},
    Formula{"gs", [](const PackRequest& r) { return r.scheme.group_size; }},
    Formula{"b", BlockInputs},
    Formula{"128", [](const PackRequest&) { return uint64_t{128}; }},
    Formula{"lcm(b, 32)",
            [](const PackRequest& r) { return std::lcm(BlockInputs(r), uint64_t{32}); }},
};

std::string FirstThatFits(std::span<const Formula> formulas,
                          const std::vector<PackRequest>& requests,
                          const std::vector<uint64_t>& values) {
  for (const Formula& formula : formulas) {
    if (std::ranges::equal(requests, values, {}, formula.value)) return std::string(formula.text);
  }
  return "";
}

struct Condition {
  std::string_view text;
  bool (*holds)(const PackRequest& r);
};

bool IsPer(const PackRequest& r, Granularity granularity) {
  return r.scheme.granularity == granularity;
}

constexpr std::array kConditions = {
    Condition{"always", [](const PackRequest&) { return true; }},
    Condition{"asymmetric weights", [](const PackRequest& r) { return !r.scheme.symmetric; }},
    Condition{"bf16 activations",
              [](const PackRequest& r) { return r.activation_dtype == DType::kBF16; }},
    Condition{"f16 activations",
              [](const PackRequest& r) { return r.activation_dtype == DType::kF16; }},
    Condition{"f32 activations",
              [](const PackRequest& r) { return r.activation_dtype == DType::kF32; }},
    Condition{"scales per block",
              [](const PackRequest& r) { return IsPer(r, Granularity::kBlock); }},
    Condition{"scales per channel",
              [](const PackRequest& r) { return IsPer(r, Granularity::kChannel); }},
    Condition{"scales per tensor",
              [](const PackRequest& r) { return IsPer(r, Granularity::kTensor); }},
    Condition{"scales per tensor or channel",
              [](const PackRequest& r) { return !IsPer(r, Granularity::kBlock); }},
    Condition{"static activations",
              [](const PackRequest& r) { return !r.scheme.activations.dynamic; }},
    Condition{"asymmetric activations",
              [](const PackRequest& r) { return !r.scheme.activations.symmetric; }},
    Condition{"static asymmetric activations",
              [](const PackRequest& r) {
                return !r.scheme.activations.dynamic && !r.scheme.activations.symmetric;
              }},
    Condition{"all but static asymmetric activations",
              [](const PackRequest& r) {
                return r.scheme.activations.dynamic || r.scheme.activations.symmetric;
              }},
    Condition{"dynamic or asymmetric activations",
              [](const PackRequest& r) {
                return r.scheme.activations.dynamic || !r.scheme.activations.symmetric;
              }},
};

}  // namespace

std::string DimensionFormula(const std::vector<PackRequest>& requests,
                             const std::vector<uint64_t>& values) {
  return FirstThatFits(kDimensions, requests, values);
}

std::string UnitFormula(const std::vector<PackRequest>& requests,
                        const std::vector<uint64_t>& values) {
  return FirstThatFits(kUnits, requests, values);
}

std::string ConditionFor(const std::vector<PackRequest>& requests, const std::vector<bool>& holds) {
  for (const Condition& condition : kConditions) {
    if (std::ranges::equal(requests, holds, {}, condition.holds)) {
      return std::string(condition.text);
    }
  }
  return "";
}

}  // namespace prepack::layouts_doc
