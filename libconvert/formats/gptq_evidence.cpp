#include "formats/gptq_evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <vector>

#include "formats/finding.h"
#include "formats/gptq_order.h"
#include "formats/gptq_shape.h"

namespace prepack {

namespace {

constexpr uint64_t kSampleBytes = 64 << 10;
constexpr uint64_t kMinWeights = 4096;
constexpr double kNear = 0.25;

Status ReadWords(const Checkpoint& checkpoint, const StoredTensor& tensor, uint64_t first,
                 std::span<uint32_t> words) {
  return checkpoint.Read(tensor, first * sizeof(uint32_t), std::as_writable_bytes(words));
}

// Stored fields of one group, for channels [0, count): −1 where they are no evidence. Words with a
// field of all ones may be spoilt; fields at the rails belong to groups of one sign, whose weights
// do not lie around zero. [edge, top] leaves out as much at either end under both conventions.
std::vector<int> UsableFields(const CodePacking& packing, const std::vector<uint32_t>& words,
                              uint64_t count) {
  const uint32_t mask = (1U << packing.bits) - 1;
  const uint32_t edge = packing.bits == 4 ? 2 : packing.bits == 3 ? 1 : 0;
  const uint32_t top = mask - 1 - edge;
  // Fields of 3 bits were wrapped one by one.
  const uint64_t per_word = packing.bits == 3 ? 1 : 32 / packing.bits;
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

// Do all zero points of the first group hold the constant that a symmetric module of the other
// convention has? An asymmetric module has no such constant.
Result<bool> HasConstantOfOther(const Checkpoint& checkpoint, const GptqShape& shape,
                                const GptqSettings& settings) {
  constexpr uint64_t kMinChannels = 16;
  if (shape.n < kMinChannels) return false;
  const uint64_t n = std::min<uint64_t>(shape.n, 1024);
  std::vector<uint32_t> words(ZeroWordsFor(shape.packing, n));
  Status status = ReadWords(checkpoint, *shape.qzeros, 0, words);
  if (!status.ok()) return status;
  const uint32_t middle = 1U << (shape.packing.bits - 1);
  const uint32_t constant = settings.zeros == GptqZeros::kMinusOne ? middle : middle - 1;
  for (uint64_t i = 0; i < n; ++i) {
    if (PackedCode(shape.packing, words, i) != constant) return false;
  }
  return true;
}

}  // namespace

double GptqZeroSample::Mean() const {
  return static_cast<double>(sum) / static_cast<double>(weights);
}

GptqZeroSample& GptqZeroSample::operator+=(const GptqZeroSample& other) {
  weights += other.weights;
  constant_of_other |= other.constant_of_other;
  sum += other.sum;
  return *this;
}

Result<GptqZeroSample> SampleGptqZeros(const Checkpoint& checkpoint, const ModuleTensors& module,
                                       const GptqSettings& settings) {
  GptqZeroSample sample;
  const Result<GptqShape> shape = CheckGptqShape(checkpoint, module, settings);
  if (!shape.ok()) return shape.status();
  const CodePacking& packing = shape->packing;
  if (settings.symmetric) return sample;
  if (packing.planar) return sample;
  if (packing.bits > 4) {
    const Result<bool> constant = HasConstantOfOther(checkpoint, *shape, settings);
    if (!constant.ok()) return constant.status();
    sample.constant_of_other = *constant;
    return sample;
  }
  const Result<GptqOrder> order = ReadGptqOrder(checkpoint, *shape);
  if (!order.ok()) return order.status();

  // The first rows of words, in one piece; of a very wide module, part of the first unit.
  const CodeUnit unit = UnitOf(packing);
  constexpr uint64_t kSampleWords = kSampleBytes / sizeof(uint32_t);
  const uint64_t n = std::min<uint64_t>(shape->n, kSampleWords / unit.stored_words);
  const uint64_t units = std::min(shape->qweight->shape[0] / unit.stored_words,
                                  std::max<uint64_t>(1, kSampleWords / n / unit.stored_words));
  const uint64_t rows = units * unit.stored_words;
  std::vector<uint32_t> words(rows * n);
  for (uint64_t row = 0; row < rows; ++row) {
    Status status = ReadWords(checkpoint, *shape->qweight, row * shape->n,
                              std::span(words).subspan(row * n, n));
    if (!status.ok()) return status;
  }

  std::vector<uint32_t> column(unit.stored_words);
  std::map<uint64_t, std::vector<int>> fields_of;  // by group
  for (uint64_t k = 0; k < units * unit.codes; ++k) {
    const uint64_t group = order->group_of.empty() ? k / shape->group_size : order->group_of[k];
    auto it = fields_of.find(group);
    if (it == fields_of.end()) {
      std::vector<uint32_t> zeros(ZeroWordsFor(packing, n));
      Status status = ReadWords(checkpoint, *shape->qzeros, group * shape->zero_words, zeros);
      if (!status.ok()) return status;
      it = fields_of.emplace(group, UsableFields(packing, zeros, n)).first;
    }
    const uint32_t* first = words.data() + k / unit.codes * unit.stored_words * n;
    for (uint64_t i = 0; i < n; ++i) {
      const int field = it->second[i];
      if (field < 0) continue;
      for (uint64_t w = 0; w < column.size(); ++w) column[w] = first[w * n + i];
      sample.sum += static_cast<int>(PackedCode(packing, column, k % unit.codes)) - field;
      ++sample.weights;
    }
  }
  return sample;
}

Status CheckGptqZeros(const GptqZeroSample& sample, GptqZeros declared, std::string_view where,
                      std::string_view hint, FindingTally& findings) {
  const bool minus_one = declared == GptqZeros::kMinusOne;
  const auto contradict = [&](const std::string& found, const std::string& expected) {
    return Malformed(where,
                     fmt::format("the zero points are declared as {}, but the weights say {}",
                                 minus_one ? "z - 1 (v1)" : "z (v2)",
                                 minus_one ? "z (v2)" : "z - 1 (v1)"))
        .Found(found)
        .Expected(expected)
        .Hint(hint)
        .Id(FindingId("gptq-zeros-contradict"));
  };
  if (sample.constant_of_other) {
    return contradict("one zero point throughout, that of a symmetric module of the other version",
                      "zero points that differ, in an asymmetric module");
  }
  if (sample.weights < kMinWeights) return {};
  const double own = minus_one ? 1.0 : 0.0;
  const double other = minus_one ? 0.0 : 1.0;
  const std::string measured =
      fmt::format("a mean of code - stored zero point of {:.3f} over {} weights", sample.Mean(),
                  sample.weights);
  if (std::abs(sample.Mean() - other) < kNear) {
    return contradict(measured, fmt::format("a mean near {}", own));
  }
  if (std::abs(sample.Mean() - other) < std::abs(sample.Mean() - own)) {
    findings.Add("gptq-zeros-uncertain", where, measured + fmt::format(", expected near {}", own));
  }
  return {};
}

}  // namespace prepack
