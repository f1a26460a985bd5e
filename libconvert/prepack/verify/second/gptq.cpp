// The second path for GPTQ tensors (GPTQModel and AutoRound): words hold the codes of several input
// channels, zero points the fields of several output channels, and v1 stores z - 1.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/verify/second/decoder.h"
#include "prepack/verify/second/fields.h"
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

// Zero points [rows, range.count], from qzeros [G, N·bits/32]. They stay what they are where qzeros
// says that the module is symmetric.
Status ReadZeros(const Checkpoint& source, const SecondRows& wanted, bool minus_one,
                 const SecondFields& fields, uint64_t groups, const SecondGroupRange& range,
                 std::vector<int16_t>& zeros) {
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
  if (is_other) return {};
  std::vector<uint32_t> lines;
  PREPACK_TRY(ReadSecond(source, *stored, {range.first, range.count, word0, words}, lines));
  if (minus_one && !crosses) {
    for (uint32_t& word : lines) word += InAllFields(width, 1);
  }
  zeros.resize(wanted.rows * range.count);
  for (uint64_t g = 0; g < range.count; ++g) {
    const auto line = std::span(lines).subspan(g * words, words);
    for (uint64_t row = 0; row < wanted.rows; ++row) {
      uint32_t zero = fields.At(line, wanted.n0 + row, 1, word0);
      if (minus_one && crosses) zero = (zero + 1) % (1U << width);
      zeros[row * range.count + g] = static_cast<int16_t>(zero);
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
  PREPACK_TRY(
      ReadSecondGroups(source, wanted.module + ".g_idx", stored_k, groups, slab, out.group_of));
  SecondGroupRange range{.first = 0, .count = groups};
  if (!wanted.whole()) range = CountFromFirstGroup(out.group_of);
  const uint64_t word0 = fields.FirstWord(wanted.k0);
  const uint64_t count = fields.LastWord(wanted.k0 + wanted.inputs - 1) - word0 + 1;
  DecodedRows::Buffers& buffers = out.buffers;
  // A line of the cache more, so that output channels do not lie in the same places of it.
  const uint64_t stride = count + kLineWords;
  buffers.turned.resize(wanted.rows * stride + kFieldSlack);
  PREPACK_TRY_ASSIGN(
      const ByteRuns lines,
      RunsOfSecond(source, *codes, {word0, count, wanted.n0, wanted.rows}, sizeof(uint32_t)));
  PREPACK_TRY(source.VisitRuns(*codes, lines, [&](const std::byte* stored) {
    TurnSecondWords(stored, count, wanted.rows, codes->shape[1], stride, buffers.turned.data());
  }));
  const SecondRange wanted_scales{range.first, range.count, wanted.n0, wanted.rows};
  PREPACK_TRY(ReadSecondFloats(source, *scales, wanted_scales, buffers.numbers));
  TransposeScales(buffers.numbers, wanted.rows, out.scales);
  std::vector<int16_t> zeros = {static_cast<int16_t>(1 << (width - 1))};
  if (!meaning.symmetric) {
    const bool minus_one = meaning.minus_one && !in_planes;
    PREPACK_TRY(ReadZeros(source, wanted, minus_one, fields, groups, range, zeros));
  }
  SecondSteps steps(width, zeros, wanted.rows, wanted.takes_small, out);
  for (uint64_t row = 0; row < wanted.rows; ++row) {
    const uint32_t* words_of_row = &buffers.turned[row * stride];
    if (width == 4 || width == 8) {
      steps.PutFields(row, reinterpret_cast<const uint8_t*>(words_of_row));
    } else {
      steps.Put(row, fields.Split(words_of_row, wanted.k0, wanted.inputs, buffers.codes).data());
    }
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
