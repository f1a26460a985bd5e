#include "prepack/check/plain_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "prepack/check/finding_list.h"
#include "prepack/check/median.h"
#include "prepack/check/model_layout.h"
#include "prepack/formats/model_parts.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

// Where the exponent lies in a value, and what is subtracted from it.
struct Exponent {
  unsigned bytes = 2;
  unsigned shift = 7;
  unsigned mask = 0xFF;
  int bias = 127;
};

Exponent ExponentOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {.bytes = 2, .shift = 10, .mask = 0x1F, .bias = 15};
    case DType::kF32:
      return {.bytes = 4, .shift = 23, .mask = 0xFF, .bias = 127};
    case DType::kF64:
      return {.bytes = 8, .shift = 52, .mask = 0x7FF, .bias = 1023};
    default:
      return {};
  }
}

template <typename Word>
void CountExponents(std::span<const std::byte> bytes, const Exponent& exponent,
                    PlainStatistics& statistics) {
  Moments<uint64_t> sums;
  for (size_t at = 0; at + sizeof(Word) <= bytes.size(); at += sizeof(Word)) {
    Word word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof(Word));
    const auto stored = static_cast<uint32_t>(word >> exponent.shift & exponent.mask);
    // Zeros have no exponent, and NaN and infinity are reported elsewhere.
    const bool counts = static_cast<Word>(word << 1) != 0 && stored != exponent.mask;
    const uint32_t e = counts ? stored : 0;
    sums.count += counts ? 1U : 0U;
    sums.sum += e;
    sums.squares += uint64_t{e} * e;
  }
  statistics.exponents.Add(sums);
}

bool IsZero(std::span<const std::byte> bytes) {
  uint64_t any = 0;
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    any |= word;
  }
  for (; at < bytes.size(); ++at) any |= std::to_integer<uint64_t>(bytes[at]);
  return any == 0;
}

constexpr std::array<std::string_view, 8> kMatrices = {
    "embed_tokens",   "wte",     "word_embeddings", "embed_in",
    "tok_embeddings", "lm_head", "embed_out",       "output"};

bool IsNorm(const StoredTensor& tensor) {
  if (tensor.shape.size() != 1 || !tensor.name.ends_with(".weight")) return false;
  const std::string_view module = ModuleOf(tensor.name);
  const std::string_view leaf = LastPart(module);
  if (leaf.find("norm") == std::string_view::npos && !leaf.starts_with("ln_")) return false;
  // Directly in a layer of the decoder, or beside its layers: norms of heads and of state spaces
  // are of other kinds.
  const auto layer = ParseLayerName(tensor.name);
  if (!layer) return std::ranges::count(module, '.') <= 2 && leaf.find("embed") == leaf.npos;
  return IsDecoderModule(tensor.name) && layer->below.find('.') == layer->below.rfind('.');
}

bool IsMatrix(const StoredTensor& tensor) {
  if (tensor.shape.size() != 2 || !tensor.name.ends_with(".weight")) return false;
  const std::string_view leaf = LastPart(ModuleOf(tensor.name));
  if (!ParseLayerName(tensor.name)) return std::ranges::find(kMatrices, leaf) != kMatrices.end();
  return IsDecoderModule(tensor.name) && leaf.ends_with("_proj");
}

// Families whose norms multiply by 1 + w.
bool AddsToOne(std::string_view family) {
  for (const std::string_view part : {"gemma", "qwen3_next", "qwen3_5", "nemotron"}) {
    if (family.find(part) != std::string_view::npos) return true;
  }
  return false;
}

double MedianMagnitude(const std::vector<PlainTensor>& tensors) {
  std::vector<double> magnitudes;
  for (const PlainTensor& plain : tensors) {
    if (!IsNorm(*plain.tensor) || plain.statistics.exponents.count == 0) continue;
    magnitudes.push_back(plain.statistics.TypicalMagnitude(plain.tensor->dtype));
  }
  if (magnitudes.empty()) return 0;
  return Median(std::move(magnitudes));
}

}  // namespace

void PlainStatistics::Merge(const PlainStatistics& other) {
  bytes += other.bytes;
  zero_bytes += other.zero_bytes;
  exponents.Add(other.exponents);
}

double PlainStatistics::ZeroShare() const {
  return bytes == 0 ? 0 : static_cast<double>(zero_bytes) / static_cast<double>(bytes);
}

double PlainStatistics::TypicalMagnitude(DType dtype) const {
  if (exponents.count == 0) return 0;
  return std::exp2(exponents.Mean() - ExponentOf(dtype).bias);
}

PlainStatistics MeasurePlain(DType dtype, std::span<const std::byte> bytes) {
  PlainStatistics statistics;
  statistics.bytes = bytes.size();
  for (size_t at = 0; at < bytes.size(); at += kZeroBlockBytes) {
    const auto block = bytes.subspan(at, std::min<size_t>(kZeroBlockBytes, bytes.size() - at));
    if (IsZero(block)) statistics.zero_bytes += block.size();
  }
  const Exponent exponent = ExponentOf(dtype);
  switch (exponent.bytes) {
    case 2:
      CountExponents<uint16_t>(bytes, exponent, statistics);
      break;
    case 4:
      CountExponents<uint32_t>(bytes, exponent, statistics);
      break;
    default:
      CountExponents<uint64_t>(bytes, exponent, statistics);
      break;
  }
  return statistics;
}

bool IsJudgedPlain(const StoredTensor& tensor) {
  return IsNorm(tensor) || IsMatrix(tensor);
}

void JudgePlain(const Checkpoint& checkpoint, std::string_view family,
                const std::vector<PlainTensor>& tensors, std::vector<Finding>& findings) {
  // Below this many values shares mean nothing.
  constexpr uint64_t kMinValues = 64;
  const double median = MedianMagnitude(tensors);
  for (const auto& [tensor, statistics] : tensors) {
    const std::string where = checkpoint.Where(*tensor);
    const bool norm = IsNorm(*tensor);
    const uint64_t values = statistics.bytes * 8 / DTypeBits(tensor->dtype);
    if (values < kMinValues || (norm && AddsToOne(family))) continue;
    if (statistics.exponents.count == 0 || (!norm && statistics.ZeroShare() > kZeroShare)) {
      findings.push_back(MakeFinding(
          "value-zero", where,
          fmt::format("{:.0f} % of the tensor are zeros",
                      statistics.exponents.count == 0 ? 100.0 : 100 * statistics.ZeroShare())));
      continue;
    }
    const double deviation = statistics.exponents.Deviation();
    if (deviation > kLargestExponents || (!norm && deviation < kSmallestExponents)) {
      findings.push_back(MakeFinding(
          "value-unlike-weights", where,
          fmt::format("the exponents of the values as {} deviate by {:.1f} ({} to {} in weights)",
                      DTypeName(tensor->dtype), deviation, kSmallestExponents, kLargestExponents)));
      continue;
    }
    if (!norm || median == 0) continue;
    const double ratio = statistics.TypicalMagnitude(tensor->dtype) / median;
    if (ratio < kNormSize && ratio > 1 / kNormSize) continue;
    findings.push_back(
        MakeFinding("norm-size", where,
                    fmt::format("its values are {:.3g} times those of the other norms", ratio)));
  }
}

}  // namespace prepack
