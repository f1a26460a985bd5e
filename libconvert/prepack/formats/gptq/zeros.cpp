#include "prepack/formats/gptq/zeros.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/gptq/shape.h"
#include "prepack/kernels/code_rows.h"
#include "prepack/kernels/kernels.h"

namespace prepack {

bool LosesZeros(const GptqZeroRules& rules, const CodePacking& packing) {
  if (rules.zeros == GptqZeros::kStored) return false;
  return packing.bits == 3 ? !rules.field_wrap : !rules.word_borrow;
}

void RestoreZeroWords(const GptqZeroRules& rules, const CodePacking& packing,
                      std::span<uint32_t> words) {
  if (rules.zeros == GptqZeros::kStored || packing.bits == 3) return;
  // A one in every field: 0x11111111 for 4 bits. Modulo 2^32, as the writer subtracted it.
  const uint32_t ones = 0xFFFFFFFFU / ((1U << packing.bits) - 1);
  for (uint32_t& word : words) word += ones;
}

uint32_t ZeroFromField(const GptqZeroRules& rules, const CodePacking& packing, uint32_t field) {
  const bool add = rules.zeros == GptqZeros::kMinusOne && packing.bits == 3;
  return add ? (field + 1) & 7U : field;
}

namespace {

constexpr uint64_t kSampleBytes = 64 << 10;
constexpr uint64_t kMinWeights = 4096;
constexpr double kNear = 0.25;

// Stored fields of one group, by channel. `use` is all ones where the field is evidence; elsewhere
// both are 0.
struct GroupFields {
  std::vector<uint32_t> field;
  std::vector<uint32_t> use;
  uint32_t usable = 0;
};

// Words with a field of all ones may be spoilt; fields at the rails belong to groups of one sign,
// whose weights do not lie around zero. [edge, top] leaves out as much at either end under both
// conventions. `words` has one more word than the fields fill.
GroupFields UsableFields(const CodePacking& packing, std::span<const uint32_t> words,
                         uint64_t channels) {
  const uint32_t mask = (1U << packing.bits) - 1;
  const uint32_t edge = packing.bits == 4 ? 2 : packing.bits == 3 ? 1 : 0;
  const uint32_t top = mask - 1 - edge;
  // Fields of 3 bits were wrapped one by one.
  const uint64_t per_word = packing.bits == 3 ? 1 : 32 / packing.bits;
  GroupFields fields;
  fields.field.resize(channels);
  fields.use.resize(channels);
  for (uint64_t begin = 0; begin < channels; begin += per_word) {
    const uint64_t end = std::min(channels, begin + per_word);
    bool spoilt = false;
    for (uint64_t n = begin; n < end; ++n) {
      const uint64_t bit = n * packing.bits;
      const uint64_t window = words[bit / 32] | uint64_t{words[bit / 32 + 1]} << 32;
      fields.field[n] = static_cast<uint32_t>(window >> bit % 32) & mask;
      spoilt |= fields.field[n] == mask;
    }
    for (uint64_t n = begin; n < end; ++n) {
      const bool usable = !spoilt && fields.field[n] >= edge && fields.field[n] <= top;
      fields.use[n] = usable ? ~0U : 0;
      fields.field[n] &= fields.use[n];
      fields.usable += usable ? 1 : 0;
    }
  }
  return fields;
}

Result<GroupFields> ReadUsableFields(const Checkpoint& checkpoint, const GptqShape& shape,
                                     uint64_t group, uint64_t channels) {
  const uint64_t count = ZeroWordsFor(shape.packing, channels);
  std::vector<uint32_t> words(count + 1);
  PREPACK_TRY(checkpoint.Read(*shape.qzeros, group * shape.zero_words * sizeof(uint32_t),
                              std::as_writable_bytes(std::span(words).first(count))));
  return UsableFields(shape.packing, words, channels);
}

// The first codes of the first channels, four bits each: [codes / 8, channels] words.
struct CodeSample {
  uint64_t codes = 0;  // per channel
  uint64_t channels = 0;
  std::vector<uint32_t> words;
};

// The first rows of words, in one piece; of a very wide module, part of the first unit.
Result<CodeSample> ReadCodes(const Checkpoint& checkpoint, const GptqShape& shape) {
  const CodeUnit unit = UnitOf(shape.packing);
  constexpr uint64_t kSampleWords = kSampleBytes / sizeof(uint32_t);
  CodeSample sample;
  sample.channels = std::min<uint64_t>(shape.n, kSampleWords / unit.stored_words);
  const uint64_t units =
      std::min(shape.qweight->shape[0] / unit.stored_words,
               std::max<uint64_t>(1, kSampleWords / sample.channels / unit.stored_words));
  sample.codes = units * unit.codes;
  const ByteRuns runs{.offset = 0,
                      .run_bytes = sample.channels * sizeof(uint32_t),
                      .stride = shape.n * sizeof(uint32_t),
                      .runs = units * unit.stored_words};
  std::vector<uint32_t> stored(runs.runs * sample.channels);
  Status status =
      checkpoint.ReadRuns(*shape.qweight, runs, std::as_writable_bytes(std::span(stored)));
  if (!status.ok()) return status;
  if (shape.packing.bits == 4) {  // as wide as they have to be
    sample.words = std::move(stored);
    return sample;
  }
  sample.words.resize(units * unit.wide_words * sample.channels);
  Kernels().widen_codes(shape.packing, stored.data(), units, sample.channels, sample.words.data());
  return sample;
}

uint64_t GroupOf(const GptqShape& shape, const GptqOrder& order, uint64_t k) {
  return order.group_of.empty() ? k / shape.group_size : order.group_of[k];
}

// The sum of the eight codes of a word.
constexpr uint32_t SumOfCodes(uint32_t word) {
  const uint32_t pairs = (word & 0x0F0F0F0FU) + (word >> 4 & 0x0F0F0F0FU);
  const uint32_t fours = (pairs & 0x00FF00FFU) + (pairs >> 8 & 0x00FF00FFU);
  return (fours + (fours >> 16)) & 0xFFFFU;
}

// Adds (code − field) for codes [first, first + count) of each of these words, one per channel, all
// of which have these fields.
void AddCodes(std::span<const uint32_t> words, uint32_t first, uint32_t count,
              const GroupFields& fields, GptqZeroSample& sample) {
  const uint32_t mask = ~0U >> (32 - 4 * count) << 4 * first;
  const uint32_t* use = fields.use.data();
  const uint32_t* field = fields.field.data();
  uint32_t codes = 0;  // at most 8 · 15 per channel
  uint32_t zeros = 0;
  for (size_t n = 0; n < words.size(); ++n) {
    codes += SumOfCodes(words[n] & mask & use[n]);
    zeros += field[n];
  }
  sample.sum += static_cast<int64_t>(codes) - static_cast<int64_t>(zeros) * count;
  sample.weights += uint64_t{fields.usable} * count;
}

// Adds the codes run by run: those of one word that are of one group.
Status AddSample(const Checkpoint& checkpoint, const GptqShape& shape, const GptqOrder& order,
                 const CodeSample& codes, GptqZeroSample& sample) {
  constexpr uint64_t kCodesPerWord = 8;
  std::map<uint64_t, GroupFields> fields;  // by group
  for (uint64_t k = 0; k < codes.codes;) {
    const uint64_t group = GroupOf(shape, order, k);
    auto it = fields.find(group);
    if (it == fields.end()) {
      PREPACK_TRY_ASSIGN(GroupFields added,
                         ReadUsableFields(checkpoint, shape, group, codes.channels));
      it = fields.emplace(group, std::move(added)).first;
    }
    uint64_t end = k + 1;
    while (end % kCodesPerWord != 0 && GroupOf(shape, order, end) == group) ++end;
    const auto words =
        std::span(codes.words).subspan(k / kCodesPerWord * codes.channels, codes.channels);
    AddCodes(words, static_cast<uint32_t>(k % kCodesPerWord), static_cast<uint32_t>(end - k),
             it->second, sample);
    k = end;
  }
  return {};
}

// Do all zero points of the first group hold the constant that a symmetric module of the other
// convention has? An asymmetric module has no such constant.
Result<bool> HasConstantOfOther(const Checkpoint& checkpoint, const GptqShape& shape,
                                const GptqSettings& settings) {
  constexpr uint64_t kMinChannels = 16;
  if (shape.n < kMinChannels) return false;
  const uint64_t n = std::min<uint64_t>(shape.n, 1024);
  std::vector<uint32_t> words(ZeroWordsFor(shape.packing, n));
  PREPACK_TRY(checkpoint.Read(*shape.qzeros, 0, std::as_writable_bytes(std::span(words))));
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
  if (settings.symmetric || settings.planar) return sample;
  PREPACK_TRY_ASSIGN(const GptqShape shape, CheckGptqShape(checkpoint, module, settings));
  if (shape.packing.bits > 4) {
    PREPACK_TRY_ASSIGN(const bool constant, HasConstantOfOther(checkpoint, shape, settings));
    sample.constant_of_other = constant;
    return sample;
  }
  PREPACK_TRY_ASSIGN(const GptqOrder order, ReadGptqOrder(checkpoint, shape));

  PREPACK_TRY_ASSIGN(const CodeSample codes, ReadCodes(checkpoint, shape));
  PREPACK_TRY(AddSample(checkpoint, shape, order, codes, sample));
  return sample;
}

std::optional<GptqZeros> ConventionOf(const GptqZeroSample& sample) {
  if (sample.weights < kMinWeights) return std::nullopt;
  if (std::abs(sample.Mean()) < kNear) return GptqZeros::kStored;
  if (std::abs(sample.Mean() - 1) < kNear) return GptqZeros::kMinusOne;
  return std::nullopt;
}

std::string DescribeGptqZeroSample(const GptqZeroSample& sample) {
  return fmt::format("a mean of code - stored zero point of {:.3f} over {} weights", sample.Mean(),
                     sample.weights);
}

Status CheckGptqZeros(const GptqZeroSample& sample, GptqZeros declared, std::string_view where,
                      std::string_view hint, FindingTally& findings) {
  const bool minus_one = declared == GptqZeros::kMinusOne;
  const auto contradict = [&](const std::string& found, const std::string& expected) {
    return Malformed(where,
                     fmt::format("the config declares zero points as {}, but the weights say {}",
                                 minus_one ? "z - 1 (v1)" : "z (v2)",
                                 minus_one ? "z (v2)" : "z - 1 (v1)"))
        .Found(found)
        .Expected(expected)
        .Hint(hint)
        .Id(FindingId("gptq-zeros-contradict"));
  };
  if (sample.constant_of_other) {
    return contradict(
        "one zero point throughout, which is that of a symmetric module in the other version",
        "zero points that differ, in an asymmetric module");
  }
  if (sample.weights < kMinWeights) return {};
  const double own = minus_one ? 1.0 : 0.0;
  const double other = minus_one ? 0.0 : 1.0;
  const std::string measured = DescribeGptqZeroSample(sample);
  const std::optional<GptqZeros> told = ConventionOf(sample);
  if (told && *told != declared) {
    return contradict(measured, fmt::format("a mean near {}", own));
  }
  if (std::abs(sample.Mean() - other) < std::abs(sample.Mean() - own)) {
    findings.Add("gptq-zeros-uncertain", where, measured + fmt::format(", expected near {}", own));
  }
  return {};
}

}  // namespace prepack
