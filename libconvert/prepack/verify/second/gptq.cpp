// The second path for GPTQ tensors (GPTQModel and AutoRound): words hold the codes of several input
// channels, zero points the fields of several output channels, and v1 stores z - 1.

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/verify/second/decoder.h"
#include "prepack/verify/second/tensors.h"

namespace prepack {
namespace {

// The same number in every field of 32 bits, whole fields alone.
uint32_t InAllFields(uint32_t width, uint32_t number) {
  uint32_t word = 0;
  for (uint32_t shift = 0; shift < 32; shift += width) word |= number << shift;
  return word;
}

// Is every field of qzeros one less than the zero point of a symmetric module? AutoRound's
// calibration-free exports store such modules as z − 1 beside others as z. Mostly the first word
// tells.
Result<bool> IsSymmetricOfOther(const Checkpoint& source, const StoredTensor& stored,
                                uint64_t groups, uint32_t width) {
  const uint32_t other = InAllFields(width, (1U << (width - 1)) - 1);
  std::vector<uint32_t> line;
  for (uint64_t g = 0; g < groups; ++g) {
    PREPACK_TRY(ReadSecond(source, stored, {g, 1, 0, stored.shape[1]}, line));
    if (std::ranges::count(line, other) != std::ssize(line)) return false;
  }
  return true;
}

// Zero points [rows, range.count], from qzeros [G, N·bits/32].
Status ReadZeros(const Checkpoint& source, const SecondRows& wanted, bool minus_one,
                 const SecondFields& fields, uint64_t groups, const SecondGroupRange& range,
                 std::vector<uint8_t>& zeros) {
  const uint32_t width = fields.bits;
  PREPACK_TRY_ASSIGN(const StoredTensor* stored, SecondTensor(source, wanted.module + ".qzeros"));
  const uint64_t word0 = fields.FirstWord(wanted.n0);
  const uint64_t words = fields.LastWord(wanted.n0 + wanted.rows - 1) + 1 - word0;
  if (stored->shape.size() != 2 || stored->shape[1] < word0 + words) {
    return Malformed(source.Where(*stored), "shapes of codes, scales and zero points disagree");
  }
  // Adding 1 to every field of a word undoes a borrow from field to field. 3-bit fields cross words
  // and were wrapped one by one.
  const bool crosses = 32 % width != 0;
  const bool may_be_other = !minus_one && !crosses;
  PREPACK_TRY_ASSIGN(const bool is_other, may_be_other
                                              ? IsSymmetricOfOther(source, *stored, groups, width)
                                              : Result<bool>(false));
  if (is_other) return {};  // they are there already
  std::vector<uint32_t> lines;
  PREPACK_TRY(ReadSecond(source, *stored, {range.first, range.count, word0, words}, lines));
  if (minus_one && !crosses) {
    for (uint32_t& word : lines) word += InAllFields(width, 1);
  }
  for (uint64_t row = 0; row < wanted.rows; ++row) {
    for (uint64_t g = 0; g < range.count; ++g) {
      uint32_t zero =
          fields.At(std::span(lines).subspan(g * words, words), wanted.n0 + row, 1, word0);
      if (minus_one && crosses) zero = (zero + 1) % (1U << width);
      zeros[row * range.count + g] = static_cast<uint8_t>(zero);
    }
  }
  return {};
}

// Number of stored input channels: those of the module, perhaps padded to whole groups.
uint64_t StoredInputs(const Checkpoint& source, uint64_t k, uint64_t groups, uint64_t words) {
  if (words * 32 % k == 0) return k;
  for (const uint64_t size : SecondConfigNumbers(source, "group_size", KeyCase::kAny)) {
    const uint64_t padded = CeilDiv(k, size) * size;
    if (padded / size == groups && words * 32 % padded == 0) return padded;
  }
  return k;
}

// So many input channels of every row are unpacked before the next ones: whole words for every
// width, whole planes, and few enough for what is read and written to stay in the cache.
constexpr uint64_t kGptqInputsAtOnce = 32;

// What lies as words [words, rows] of the input channels from k0 on, and zero points [rows,
// groups].
struct GptqWords {
  SecondFields fields;
  uint64_t k0 = 0;
  uint64_t rows = 0;
  uint64_t groups = 0;
  std::vector<uint32_t> codes = {};
  std::vector<uint8_t> zeros = {};

  std::span<const uint8_t> ZerosOf(uint64_t row) const {
    return std::span(zeros).subspan(row * groups, groups);
  }
};

void Unpack(const GptqWords& gptq, DecodedRows& out) {
  const SecondFields& fields = gptq.fields;
  const uint64_t inputs = out.inputs();
  out.Resize(gptq.rows * inputs, /*as_small=*/false);
  const uint64_t skipped = fields.FirstWord(gptq.k0);
  std::array<uint32_t, 8> words{};  // one per bit of a code
  for (uint64_t first = 0; first < inputs; first += kGptqInputsAtOnce) {
    const uint64_t count = std::min(inputs - first, kGptqInputsAtOnce);
    for (uint64_t row = 0; row < gptq.rows; ++row) {
      for (uint64_t i = 0; i < fields.Words(count); ++i) {
        words[i] = gptq.codes[(fields.FirstWord(gptq.k0 + first) - skipped + i) * gptq.rows + row];
      }
      const auto steps = std::span(out.steps).subspan(row * inputs + first, count);
      fields.Unpack(words, 0, steps);
      const std::span zeros = gptq.ZerosOf(row);
      for (uint64_t i = 0; i < count; ++i) {
        steps[i] -= static_cast<float>(zeros[out.group_of[first + i]]);
      }
    }
  }
}

// The same of 4 bits as bytes, eight input channels of a word together.

constexpr uint64_t kOfWord = 8;
constexpr uint64_t kLineOfSteps = 64;  // a cache line, which is written at once
constexpr uint64_t kEachByte = 0x0101010101010101;

// The fields of a word, one in each byte.
uint64_t SpreadFields(uint32_t word) {
  uint64_t fields = word;
  fields = (fields | fields << 16) & 0x0000FFFF0000FFFF;
  fields = (fields | fields << 8) & 0x00FF00FF00FF00FF;
  return (fields | fields << 4) & 0x0F0F0F0F0F0F0F0F;
}

// The zero points of eight input channels, one in each byte.
uint64_t ZerosOfWord(std::span<const uint8_t> zeros, const uint64_t* group_of) {
  uint64_t all = 0;
  for (uint64_t i = 0; i < kOfWord; ++i) all |= uint64_t{zeros[group_of[i]]} << 8 * i;
  return all;
}

void UnpackSmall(const GptqWords& gptq, DecodedRows& out) {
  const uint64_t inputs = out.inputs();
  out.Resize(gptq.rows * inputs, /*as_small=*/true);
  const bool alike = std::ranges::count(gptq.zeros, gptq.zeros.front()) == std::ssize(gptq.zeros);
  std::vector<uint8_t> together;  // of each word: do its input channels have one zero point?
  for (uint64_t k = 0; k < inputs; k += kOfWord) {
    const std::span groups = std::span(out.group_of).subspan(k, kOfWord);
    together.push_back(alike || std::ranges::count(groups, groups[0]) == kOfWord ? 1 : 0);
  }
  const uint64_t rows = gptq.rows;
  int8_t* const to = out.small.data();
  for (uint64_t first = 0; first < inputs; first += kLineOfSteps) {
    const uint64_t end = std::min(inputs, first + kLineOfSteps);
    for (uint64_t row = 0; row < rows; ++row) {
      const std::span zeros = gptq.ZerosOf(row);
      const uint32_t* words = &gptq.codes[row];
      for (uint64_t k = first; k < end; k += kOfWord) {
        const uint64_t word = k / kOfWord;
        const uint64_t* group_of = &out.group_of[k];
        const uint64_t zero =
            together[word] != 0 ? zeros[*group_of] * kEachByte : ZerosOfWord(zeros, group_of);
        // With the high bits set, no byte borrows from the next.
        const uint64_t steps =
            ((SpreadFields(words[word * rows]) | 0x80 * kEachByte) - zero) ^ 0x80 * kEachByte;
        std::memcpy(to + row * inputs + k, &steps, sizeof steps);
      }
    }
  }
}

}  // namespace

Status DecodeGptqTensors(const Checkpoint& source, const SecondRows& wanted,
                         const SecondGptqMeaning& meaning, DecodedRows& out) {
  PREPACK_TRY_ASSIGN(const StoredTensor* codes, SecondTensor(source, wanted.module + ".qweight"));
  PREPACK_TRY_ASSIGN(const StoredTensor* scales, SecondTensor(source, wanted.module + ".scales"));
  const auto wrong = [&] {
    return Malformed(source.Where(*codes), "shapes of codes, scales and zero points disagree");
  };
  if (codes->shape.size() != 2 || scales->shape.size() != 2) return wrong();
  if (wanted.k == 0 || wanted.rows == 0) return wrong();
  const uint64_t groups = scales->shape[0];
  const uint64_t words = codes->shape[0];
  const uint64_t stored_k = StoredInputs(source, wanted.k, groups, words);
  const uint64_t bits = words * 32 / stored_k;
  if (groups == 0 || bits == 0 || bits > 8 || words * 32 != stored_k * bits) return wrong();
  const auto width = static_cast<uint32_t>(bits);
  const bool in_planes = (width >= 5 && width <= 7) || (width == 3 && meaning.planes);
  if (in_planes && stored_k % 32 != 0) return wrong();
  const SecondFields fields{.bits = width, .planes = in_planes};
  const InputSlab slab{.k0 = wanted.k0, .inputs = wanted.inputs};
  Status status =
      ReadSecondGroups(source, wanted.module + ".g_idx", stored_k, groups, slab, out.group_of);
  if (!status.ok()) return status;
  SecondGroupRange range{.first = 0, .count = groups};
  if (!wanted.whole()) range = CountFromFirstGroup(out.group_of);
  const uint64_t word0 = fields.FirstWord(wanted.k0);
  const uint64_t count = fields.LastWord(wanted.k0 + wanted.inputs - 1) - word0 + 1;
  GptqWords gptq{.fields = fields, .k0 = wanted.k0, .rows = wanted.rows, .groups = range.count};
  status = ReadSecond(source, *codes, {word0, count, wanted.n0, wanted.rows}, gptq.codes);
  std::vector<double> columns;
  if (status.ok()) {
    const SecondRange wanted_scales{range.first, range.count, wanted.n0, wanted.rows};
    status = ReadSecondFloats(source, *scales, wanted_scales, columns);
  }
  if (!status.ok()) return status;
  gptq.zeros.assign(range.count * wanted.rows, static_cast<uint8_t>(1U << (width - 1)));
  if (!meaning.symmetric) {
    const bool minus_one = meaning.minus_one && !in_planes;
    status = ReadZeros(source, wanted, minus_one, fields, groups, range, gptq.zeros);
    if (!status.ok()) return status;
  }
  TransposeScales(columns, wanted.rows, out.scales);
  if (wanted.takes_small && width == 4 && wanted.inputs % kOfWord == 0) {
    UnpackSmall(gptq, out);
  } else {
    Unpack(gptq, out);
  }
  return {};
}

namespace {

bool SaysFormat(const Checkpoint& source, const char* name) {
  for (const char* key : {"checkpoint_format", "format"}) {
    const Json* format = SecondConfigField(source, key, KeyCase::kAny);
    if (format != nullptr && *format == name) return true;
  }
  return false;
}

}  // namespace

Status DecodeGptq(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  SecondGptqMeaning meaning;
  meaning.symmetric = SecondAllSymmetric(source, KeyCase::kAny);
  meaning.planes = SaysFormat(source, "gptq_p");
  meaning.minus_one = !meaning.planes && !SaysFormat(source, "gptq_v2");
  return DecodeGptqTensors(source, wanted, meaning, out);
}

namespace {

SecondGptqMeaning MeaningOf(const Checkpoint& source, const std::string& packing,
                            bool old_model_free) {
  SecondGptqMeaning meaning;
  meaning.symmetric = SecondAllSymmetric(source);
  const bool stored = packing == "auto_round" || packing == "auto_round:gptqmodel";
  meaning.minus_one = !stored || old_model_free;
  return meaning;
}

}  // namespace

Status DecodeAutoRound(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  std::string packing;
  for (const char* key : {"packing_format", "backend"}) {
    const Json* value = SecondConfigField(source, key);
    if (value == nullptr || !value->is_string()) continue;
    packing = value->get<std::string>();
    break;
  }
  if (packing.find("awq") != std::string::npos) return DecodeAwq(source, wanted, out);
  return DecodeGptqTensors(source, wanted, MeaningOf(source, packing, wanted.old_model_free), out);
}

}  // namespace prepack
