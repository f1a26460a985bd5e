#include "formats/gptq_evidence.h"
#include "formats/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <vector>

#include "formats/gptq_order.h"
#include "formats/gptq_shape.h"

namespace prepack {

namespace {

constexpr uint64_t kSampleBytes = 64 << 10;
constexpr uint64_t kMinWeights = 4096;
constexpr double kNear = 0.25;

Status ReadWords(const Checkpoint& checkpoint, const StoredTensor& tensor, uint64_t first,
                 std::vector<uint32_t>& words) {
  return checkpoint.Read(tensor, first * sizeof(uint32_t),
                         std::as_writable_bytes(std::span(words)));
}

// Stored fields of one group, for channels [0, count): −1 where they are no evidence. Words with a
// field of all ones may be spoilt; fields at the rails belong to groups of one sign, whose weights
// do not lie around zero. [edge, top] leaves out as much at either end under both conventions.
std::vector<int> UsableFields(const CodePacking& packing, const std::vector<uint32_t>& words,
                              uint64_t count) {
  const uint32_t mask = (1U << packing.bits) - 1;
  const uint32_t edge = packing.bits == 4 ? 2 : 0;
  const uint32_t top = mask - 1 - edge;
  const uint64_t per_word = 32 / packing.bits;
  std::vector<int> fields(count, -1);
  for (uint64_t begin = 0; begin < count; begin += per_word) {
    const uint64_t end = std::min(count, begin + per_word);
    bool spoilt = false;
    for (uint64_t n = begin; n < end; ++n) spoilt |= PackedCode(packing, words, n) == mask;
    for (uint64_t n = begin; n < end && !spoilt; ++n) {
      const uint32_t field = PackedCode(packing, words, n);
      if (field >= edge && field <= top) fields[n] = static_cast<int>(field);
    }
  }
  return fields;
}

}  // namespace

double GptqZeroSample::Mean() const {
  return static_cast<double>(sum) / static_cast<double>(weights);
}

GptqZeroSample& GptqZeroSample::operator+=(const GptqZeroSample& other) {
  weights += other.weights;
  sum += other.sum;
  return *this;
}

Result<GptqZeroSample> SampleGptqZeros(const Checkpoint& checkpoint, const ModuleTensors& module,
                                       const GptqSettings& settings) {
  GptqZeroSample sample;
  const Result<GptqShape> shape = CheckGptqShape(checkpoint, module, settings);
  if (!shape.ok()) return shape.status();
  const CodePacking& packing = shape->packing;
  if (settings.symmetric || (packing.bits != 2 && packing.bits != 4)) return sample;
  const Result<GptqOrder> order = ReadGptqOrder(checkpoint, *shape);
  if (!order.ok()) return order.status();

  // The first rows of words, in one piece; of a very wide module, part of the first one.
  const uint64_t n = std::min<uint64_t>(shape->n, kSampleBytes / sizeof(uint32_t));
  const uint64_t rows =
      n < shape->n ? 1
                   : std::min(shape->qweight->shape[0], kSampleBytes / sizeof(uint32_t) / shape->n);
  std::vector<uint32_t> words(rows * n);
  Status status = ReadWords(checkpoint, *shape->qweight, 0, words);
  if (!status.ok()) return status;

  const uint64_t per_word = 32 / packing.bits;
  const uint32_t mask = (1U << packing.bits) - 1;
  std::map<uint64_t, std::vector<int>> fields_of;  // by group
  for (uint64_t k = 0; k < rows * per_word; ++k) {
    const uint64_t group = order->group_of.empty() ? k / shape->group_size : order->group_of[k];
    auto it = fields_of.find(group);
    if (it == fields_of.end()) {
      std::vector<uint32_t> zeros(ZeroWordsFor(packing, n));
      status = ReadWords(checkpoint, *shape->qzeros, group * shape->zero_words, zeros);
      if (!status.ok()) return status;
      it = fields_of.emplace(group, UsableFields(packing, zeros, n)).first;
    }
    const uint32_t* row = words.data() + k / per_word * n;
    const auto shift = static_cast<uint32_t>(k % per_word * packing.bits);
    for (uint64_t i = 0; i < n; ++i) {
      const int field = it->second[i];
      if (field < 0) continue;
      sample.sum += static_cast<int>(row[i] >> shift & mask) - field;
      ++sample.weights;
    }
  }
  return sample;
}

Status CheckGptqZeros(const GptqZeroSample& sample, GptqZeros declared, std::string_view where) {
  if (sample.weights < kMinWeights) return {};
  const bool minus_one = declared == GptqZeros::kMinusOne;
  const double other = minus_one ? 0.0 : 1.0;
  if (std::abs(sample.Mean() - other) >= kNear) return {};
  return Malformed(where, fmt::format("the zero points are declared as {}, but the weights say {}",
                                      minus_one ? "z - 1 (v1)" : "z (v2)",
                                      minus_one ? "z (v2)" : "z - 1 (v1)"))
      .Found(fmt::format("a mean of code - stored zero point of {:.3f} over {} weights",
                         sample.Mean(), sample.weights))
      .Expected(fmt::format("a mean near {}", minus_one ? 1 : 0))
      .Hint(fmt::format("If the weights are right, set checkpoint_format to \"{}\" in every copy "
                        "of the quantization config",
                        minus_one ? "gptq_v2" : "gptq"))
      .Id(FindingId("gptq-zeros-contradict"));
}

}  // namespace prepack
