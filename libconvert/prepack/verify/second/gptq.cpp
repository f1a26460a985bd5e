// The second path for GPTQ tensors (GPTQModel and AutoRound): words hold the codes of several input
// channels, zero points the fields of several output channels, and v1 stores z - 1.

#include <algorithm>
#include <array>
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

// Zero points [range.count, rows] of `groups` groups, from qzeros [G, N·bits/32].
Status ReadZeros(const Checkpoint& source, const SecondRows& wanted, bool minus_one,
                 const SecondFields& fields, uint64_t groups, const SecondGroupRange& range,
                 std::vector<int>& zeros) {
  const uint32_t width = fields.bits;
  PREPACK_TRY_ASSIGN(const StoredTensor* stored, SecondTensor(source, wanted.module + ".qzeros"));
  const bool matrix = stored->shape.size() == 2;
  const uint64_t line_words = matrix ? stored->shape[1] : 0;
  if (line_words < fields.Words(wanted.n0 + wanted.rows)) {
    return Malformed(source.Where(*stored), "shapes of codes, scales and zero points disagree");
  }
  // Adding 1 to every field of a word undoes a borrow from field to field. 3-bit fields cross words
  // and were wrapped one by one.
  const bool crosses = 32 % width != 0;
  uint32_t ones = 0;
  for (uint32_t shift = 0; shift < 32; shift += width) ones |= 1U << shift;
  std::vector<uint32_t> line;
  const uint32_t middle = 1U << (width - 1);
  // AutoRound's calibration-free exports store symmetric modules as z − 1 beside others as z.
  bool symmetric_of_other = !minus_one && !crosses;
  for (uint64_t g = 0; g < groups; ++g) {
    PREPACK_TRY(ReadSecond(source, *stored, {g, 1, 0, line_words}, line));
    symmetric_of_other = symmetric_of_other && std::ranges::all_of(line, [&](uint32_t word) {
                           return word == ones * (middle - 1);
                         });
    if (g < range.first || g - range.first >= range.count) continue;
    if (minus_one && !crosses) {
      for (uint32_t& word : line) word += ones;
    }
    for (uint64_t row = 0; row < wanted.rows; ++row) {
      uint32_t zero = fields.At(line, wanted.n0 + row);
      if (minus_one && crosses) zero = (zero + 1) % (1U << width);
      zeros[(g - range.first) * wanted.rows + row] = static_cast<int>(zero);
    }
  }
  if (symmetric_of_other) std::ranges::fill(zeros, static_cast<int>(middle));
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

// Steps [rows, inputs] of codes from input channel k0 on, which lie as words [words, rows], with
// zero points [groups, rows].
void Unpack(SecondFields fields, uint64_t k0, std::span<const uint32_t> packed,
            std::span<const int> zeros, uint64_t rows, DecodedRows& out) {
  const uint64_t inputs = out.inputs();
  const uint64_t groups = zeros.size() / rows;
  std::vector<float> zeros_by_row(zeros.size());
  for (uint64_t i = 0; i < zeros.size(); ++i) {
    zeros_by_row[i % rows * groups + i / rows] = static_cast<float>(zeros[i]);
  }
  out.steps.resize(rows * inputs);
  const uint64_t skipped = fields.FirstWord(k0);
  std::array<uint32_t, 8> words{};  // one per bit of a code
  for (uint64_t first = 0; first < inputs; first += kGptqInputsAtOnce) {
    const uint64_t count = std::min(inputs - first, kGptqInputsAtOnce);
    for (uint64_t row = 0; row < rows; ++row) {
      for (uint64_t i = 0; i < fields.Words(count); ++i) {
        words[i] = packed[(fields.FirstWord(k0 + first) - skipped + i) * rows + row];
      }
      const auto steps = std::span(out.steps).subspan(row * inputs + first, count);
      fields.Unpack(words, 0, steps);
      const float* zeros_of_row = &zeros_by_row[row * groups];
      for (uint64_t i = 0; i < count; ++i) steps[i] -= zeros_of_row[out.group_of[first + i]];
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
  std::vector<uint32_t> packed;
  status = ReadSecond(source, *codes, {word0, count, wanted.n0, wanted.rows}, packed);
  std::vector<double> columns;
  if (status.ok()) {
    const SecondRange wanted_scales{range.first, range.count, wanted.n0, wanted.rows};
    status = ReadSecondFloats(source, *scales, wanted_scales, columns);
  }
  if (!status.ok()) return status;
  std::vector<int> zeros(range.count * wanted.rows, 1 << (width - 1));
  if (!meaning.symmetric) {
    const bool minus_one = meaning.minus_one && !in_planes;
    status = ReadZeros(source, wanted, minus_one, fields, groups, range, zeros);
    if (!status.ok()) return status;
  }
  TransposeScales(columns, wanted.rows, out.scales);
  Unpack(fields, wanted.k0, packed, zeros, wanted.rows, out);
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
