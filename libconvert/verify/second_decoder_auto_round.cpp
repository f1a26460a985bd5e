#include <fmt/format.h>

#include <vector>

#include "verify/second_decoder_formats.h"
#include "verify/second_tensors.h"

namespace prepack {
namespace {

// Field `index` of `bits` bits in a little-endian string of words `stride` apart.
uint32_t Field(const std::vector<uint32_t>& words, uint64_t first, uint64_t stride, uint64_t index,
               uint32_t bits) {
  uint32_t field = 0;
  for (uint32_t b = 0; b < bits; ++b) {
    const uint64_t bit = index * bits + b;
    field |= (words[first + bit / 32 * stride] >> (bit % 32) & 1U) << b;
  }
  return field;
}

// What the config says of zero points.
struct ZeroMeaning {
  bool symmetric = true;
  bool minus_one = true;
};

Result<ZeroMeaning> MeaningOf(const Checkpoint& source, const std::string& packing) {
  ZeroMeaning meaning;
  if (const Json* extra = SecondConfigField(source, "extra_config")) {
    for (const auto& [key, entry] : extra->items()) {
      if (!entry.is_object() || !entry.contains("sym")) continue;
      return Unsupported("config.json: quantization_config.extra_config",
                         "the second decoder does not know which layers are symmetric");
    }
  }
  if (const Json* sym = SecondConfigField(source, "sym")) meaning.symmetric = *sym != false;
  const Json* model_free = SecondConfigField(source, "model_free");
  const bool stored = packing == "auto_round" || packing == "auto_round:gptqmodel";
  meaning.minus_one = !stored || (model_free != nullptr && *model_free == true);
  return meaning;
}

// GPTQ's tensors: qweight [K·bits/32, N], qzeros [G, N·bits/32], scales [G, N].
Status DecodeGptqTensors(const Checkpoint& source, const SecondRows& wanted,
                         const ZeroMeaning& meaning, DecodedRows& out) {
  const Result<const StoredTensor*> codes = SecondTensor(source, wanted.module + ".qweight");
  if (!codes.ok()) return codes.status();
  const Result<const StoredTensor*> scales = SecondTensor(source, wanted.module + ".scales");
  if (!scales.ok()) return scales.status();
  const auto wrong = [&] {
    return Malformed(source.Where(**codes), "shapes of codes, scales and zero points disagree");
  };
  if ((*codes)->shape.size() != 2 || (*scales)->shape.size() != 2 || wanted.k == 0) return wrong();
  const uint64_t groups = (*scales)->shape[0];
  const uint64_t words = (*codes)->shape[0];
  const uint64_t bits = words * 32 / wanted.k;
  if (groups == 0 || wanted.k % groups != 0 || bits == 0 || bits > 8 ||
      words * 32 != wanted.k * bits) {
    return wrong();
  }
  const auto width = static_cast<uint32_t>(bits);
  std::vector<uint32_t> packed;
  Status status = ReadSecond(source, **codes, {0, words, wanted.n0, wanted.rows}, packed);
  std::vector<double> columns;
  if (status.ok()) {
    status = ReadSecondFloats(source, **scales, {0, groups, wanted.n0, wanted.rows}, columns);
  }
  if (!status.ok()) return status;
  std::vector<int> zeros(groups * wanted.rows, 1 << (width - 1));
  if (!meaning.symmetric) {
    const Result<const StoredTensor*> stored = SecondTensor(source, wanted.module + ".qzeros");
    if (!stored.ok()) return stored.status();
    if (meaning.minus_one && width == 3) {
      return Unsupported(source.Where(**stored), "zero points of 3 bits that are stored as z - 1");
    }
    if ((*stored)->shape.size() != 2) return wrong();
    std::vector<uint32_t> line;
    const uint64_t line_words = (*stored)->shape[1];
    if (line_words * 32 < (wanted.n0 + wanted.rows) * width) return wrong();
    // Adding 1 to every field of a word undoes a borrow that went from field to field.
    uint32_t ones = 0;
    for (uint32_t shift = 0; shift < 32; shift += width) ones |= 1U << shift;
    for (uint64_t g = 0; g < groups; ++g) {
      status = ReadSecond(source, **stored, {g, 1, 0, line_words}, line);
      if (!status.ok()) return status;
      if (meaning.minus_one) {
        for (uint32_t& word : line) word += ones;
      }
      for (uint64_t row = 0; row < wanted.rows; ++row) {
        zeros[g * wanted.rows + row] = static_cast<int>(Field(line, 0, 1, wanted.n0 + row, width));
      }
    }
  }
  out.groups = groups;
  out.steps.resize(wanted.rows * wanted.k);
  out.scales.resize(wanted.rows * groups);
  const uint64_t group_size = wanted.k / groups;
  for (uint64_t row = 0; row < wanted.rows; ++row) {
    for (uint64_t k = 0; k < wanted.k; ++k) {
      const uint64_t g = k / group_size;
      const auto code = static_cast<int>(Field(packed, row, wanted.rows, k, width));
      out.steps[row * wanted.k + k] = static_cast<int16_t>(code - zeros[g * wanted.rows + row]);
      out.scales[row * groups + g] = columns[g * wanted.rows + row];
    }
  }
  return {};
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
  const Result<ZeroMeaning> meaning = MeaningOf(source, packing);
  if (!meaning.ok()) return meaning.status();
  return DecodeGptqTensors(source, wanted, *meaning, out);
}

}  // namespace prepack
