// Checks the tensors that are not quantized: values that are not finite, pages of zeros, and bytes
// of another dtype, which show in the spread of exponents.

#include "prepack/check/plain_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/parallel.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/check/check.h"
#include "prepack/check/measured.h"
#include "prepack/check/model_checks.h"
#include "prepack/container/json_fields.h"
#include "prepack/container/model_config.h"
#include "prepack/formats/model_parts.h"
#include "prepack/measure/module_statistics.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

// A thread reads this much at a time: it stays in the cache, and the file is still read in long
// runs.
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

// NaN and infinity are the numbers whose exponent has all bits set. The loop is simple enough for
// compilers to vectorize.
template <typename Word>
uint64_t CountFullExponents(std::span<const std::byte> bytes, Word exponent) {
  uint64_t count = 0;
  for (size_t at = 0; at + sizeof(Word) <= bytes.size(); at += sizeof(Word)) {
    Word word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof(Word));
    count += (word & exponent) == exponent ? 1U : 0U;
  }
  return count;
}

struct Piece {
  size_t tensor = 0;  // index of the caller
  uint64_t offset = 0;
  uint64_t bytes = 0;
  PlainMeasurement values;
};

class PlainValues {
 public:
  PlainValues(const Checkpoint& checkpoint, const QuantizedModel& model, Measurements& measured)
      : checkpoint_(checkpoint), measured_(measured) {
    const std::vector<bool> quantized = TensorsInModules(checkpoint, model);
    for (const StoredTensor& tensor : checkpoint.tensors()) {
      const bool mask = LastPart(tensor.name).find("mask") != std::string_view::npos;
      if (mask || !IsPlainFloat(tensor.dtype) || quantized[NumberOf(checkpoint, tensor)]) continue;
      tensors_.push_back(&tensor);
      if (!measured_.Measures(UnitOfTensor(tensor.name))) continue;
      for (uint64_t offset = 0; offset < tensor.bytes; offset += kPieceBytes) {
        pieces_.push_back({.tensor = tensors_.size() - 1,
                           .offset = offset,
                           .bytes = std::min(kPieceBytes, tensor.bytes - offset),
                           .values = {}});
      }
    }
  }

  uint64_t total_bytes() const {
    uint64_t total = 0;
    for (const Piece& piece : pieces_) total += piece.bytes;
    return total;
  }

  Status Read(unsigned threads, Progress& progress) {
    std::vector<std::vector<std::byte>> buffers(threads);
    return ParallelFor(pieces_.size(), threads, [&](size_t index, unsigned worker) {
      Piece& piece = pieces_[index];
      if (CancellationRequested()) return Interrupted(tensors_[piece.tensor]->name);
      progress.BeginItem(tensors_[piece.tensor]->name);
      buffers[worker].resize(static_cast<size_t>(piece.bytes));
      Status status = ReadPiece(piece, buffers[worker]);
      progress.Add(piece.bytes);
      return status;
    });
  }

  Status Report(std::vector<Finding>& findings) const {
    std::vector<PlainMeasurement> values = Together();
    for (size_t i = 0; i < tensors_.size() && !measured_.whole(); ++i) {
      const std::string unit = UnitOfTensor(tensors_[i]->name);
      PREPACK_TRY_ASSIGN(values[i], measured_.Of<PlainMeasurement>(
                                        {.kind = "plain", .name = tensors_[i]->name, .unit = unit},
                                        [&] { return Result(values[i]); }));
    }
    if (!measured_.is_part()) Judge(values, findings);
    return {};
  }

 private:
  // Of all pieces of each tensor.
  std::vector<PlainMeasurement> Together() const {
    std::vector<PlainMeasurement> values(tensors_.size());
    for (const Piece& piece : pieces_) {
      PlainMeasurement& all = values[piece.tensor];
      if (all.not_finite == 0) all.first_offset = piece.values.first_offset;
      all.not_finite += piece.values.not_finite;
      all.statistics.Merge(piece.values.statistics);
    }
    return values;
  }

  void Judge(const std::vector<PlainMeasurement>& values, std::vector<Finding>& findings) const {
    std::vector<PlainTensor> judged;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const StoredTensor& stored = *tensors_[i];
      if (stored.bytes == 0) continue;
      if (IsJudgedPlain(stored)) judged.push_back({&stored, values[i].statistics});
      if (values[i].not_finite == 0) continue;
      const uint64_t each = DTypeBits(stored.dtype) / 8;
      findings.push_back(MakeFinding(
          "value-not-finite", checkpoint_.Where(stored),
          fmt::format("{} of {} values are NaN or infinite, first number {}", values[i].not_finite,
                      stored.bytes / each, values[i].first_offset / each)));
    }
    JudgePlain(checkpoint_, ModelTypeOf(checkpoint_.config()), judged, findings);
  }

  Status ReadPiece(Piece& piece, std::span<std::byte> buffer) const {
    const StoredTensor& tensor = *tensors_[piece.tensor];
    PREPACK_TRY(checkpoint_.Read(tensor, piece.offset, buffer));
    PlainMeasurement& values = piece.values;
    values.not_finite = CountNotFinite(tensor.dtype, buffer);
    if (IsJudgedPlain(tensor)) values.statistics = MeasurePlain(tensor.dtype, buffer);
    if (values.not_finite == 0) return {};
    const size_t each = DTypeBits(tensor.dtype) / 8;
    size_t at = 0;
    while (CountNotFinite(tensor.dtype, buffer.subspan(at, each)) == 0) at += each;
    values.first_offset = piece.offset + at;
    return {};
  }

  const Checkpoint& checkpoint_;
  Measurements& measured_;
  std::vector<const StoredTensor*> tensors_;
  std::vector<Piece> pieces_;
};

}  // namespace

bool IsPlainFloat(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

uint64_t CountNotFinite(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kF16:
      return CountFullExponents<uint16_t>(bytes, 0x7C00U);
    case DType::kBF16:
      return CountFullExponents<uint16_t>(bytes, 0x7F80U);
    case DType::kF32:
      return CountFullExponents<uint32_t>(bytes, 0x7F800000U);
    default:
      return CountFullExponents<uint64_t>(bytes, 0x7FF0000000000000U);
  }
}

Status CheckPlainValues(const Checkpoint& checkpoint, const QuantizedModel& model,
                        Measurements& measured, unsigned threads, Progress& progress,
                        std::vector<Finding>& findings) {
  PlainValues values(checkpoint, model, measured);
  progress.Begin("checking float tensors", values.total_bytes());
  PREPACK_TRY(values.Read(threads, progress));
  return values.Report(findings);
}

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
  // Directly in a layer of the decoder or beside the layers: norms of heads and of state spaces are
  // different.
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
  // With fewer values than this, shares mean nothing.
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
          fmt::format("{:.0f} % of the tensor is zero",
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
                    fmt::format("the values are {:.3g} times those of the other norms", ratio)));
  }
}

namespace {

constexpr std::array<std::string_view, 4> kEmbeddings = {
    "model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
    "transformer.wte.weight",
};
constexpr std::array<std::string_view, 2> kHeads = {"lm_head", "language_model.lm_head"};

constexpr size_t kChunk = size_t{1} << 20;

// True only if the config says so; what its absence means depends on the architecture. If the top
// level has the field, it decides, as in transformers 5 and vLLM: the text_config of a multimodal
// model may have inherited another value.
bool IsTied(const Checkpoint& checkpoint) {
  const auto says = [](const Json& config) {
    const Json* value = JsonMember(config, "tie_word_embeddings");
    return value != nullptr && value->is_boolean() ? std::optional(value->get<bool>())
                                                   : std::nullopt;
  };
  const std::optional<bool> whole = says(checkpoint.config());
  return whole ? *whole : says(LanguageConfig(checkpoint.config())).value_or(false);
}

const StoredTensor* FindEmbedding(const Checkpoint& checkpoint) {
  for (const std::string_view name : kEmbeddings) {
    if (const StoredTensor* embedding = checkpoint.Find(name)) return embedding;
  }
  return nullptr;
}

Result<bool> SameBytes(const Checkpoint& checkpoint, const StoredTensor& a, const StoredTensor& b) {
  std::vector<std::byte> left;
  std::vector<std::byte> right;
  for (uint64_t offset = 0; offset < a.bytes; offset += kChunk) {
    if (CancellationRequested()) return Interrupted(a.name);
    left.resize(static_cast<size_t>(std::min<uint64_t>(kChunk, a.bytes - offset)));
    right.resize(left.size());
    PREPACK_TRY(checkpoint.Read(a, offset, left));
    PREPACK_TRY(checkpoint.Read(b, offset, right));
    if (left != right) return false;
  }
  return true;
}

}  // namespace

Status CheckTiedWeights(const Checkpoint& checkpoint, const QuantizedModel& model, bool read_data,
                        std::vector<Finding>& findings) {
  const StoredTensor* embedding = FindEmbedding(checkpoint);
  const bool tied = IsTied(checkpoint);
  for (const std::string_view head : kHeads) {
    if (tied && model.Find(head) != nullptr) {
      findings.push_back(MakeFinding("tied-head-differs", head,
                                     "the head is quantized, and tied to the embedding"));
      continue;
    }
    const StoredTensor* weight = checkpoint.Find(std::string(head) + ".weight");
    if (weight == nullptr || embedding == nullptr) continue;
    const bool alike = weight->dtype == embedding->dtype && weight->shape == embedding->shape;
    if (alike && !read_data) continue;
    bool same = false;
    if (alike) {
      PREPACK_TRY_ASSIGN(const bool compared, SameBytes(checkpoint, *weight, *embedding));
      same = compared;
    }
    if (same) {
      findings.push_back(MakeFinding("tied-head-stored-twice", head,
                                     fmt::format("the same bytes as {}", embedding->name)));
    } else if (tied) {
      findings.push_back(MakeFinding(
          "tied-head-differs", head,
          fmt::format("not the {} of {}", alike ? "bytes" : "dtype and shape", embedding->name)));
    }
  }
  return {};
}

const StoredTensor* TiedEmbedding(const Checkpoint& checkpoint, std::string_view head) {
  const bool is_head = std::ranges::any_of(
      kHeads, [&](std::string_view name) { return head == std::string(name) + ".weight"; });
  return is_head && IsTied(checkpoint) ? FindEmbedding(checkpoint) : nullptr;
}

}  // namespace prepack
