// The second path for Quark's integers, code by code, from the words of the format:
//
//     per_group    codes [K, N], scales [G, N], zero points [G, N]
//     otherwise    codes [N, K], scales [N] or one, zero points [N] or one
//
// and in the first versions, where bytes are per_group: codes [N, K], scales [N, G], zero points
// [N, G].
//
// of which eight codes of 4 bits lie in a word along the last dimension, as do their zero points.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/verify/second/decoder.h"
#include "prepack/verify/second/tensors.h"

namespace prepack {
namespace {

// Bits to shift a word by for number i mod 8.
constexpr std::array<unsigned, 8> kReordered = {0, 16, 4, 20, 8, 24, 12, 28};
constexpr std::array<unsigned, 8> kInOrder = {0, 4, 8, 12, 16, 20, 24, 28};

// Does the whole name match, where * stands for anything and ? for any one character?
bool Matches(std::string_view pattern, std::string_view name) {
  size_t p = 0;
  size_t n = 0;
  size_t star =
      std::string_view::npos;  // the last one, and what it stands for so far ends at `end`
  size_t end = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      end = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

const Json* MemberOf(const Json* object, const char* key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(key);
  return found == object->end() ? nullptr : &*found;
}

// How the numbers of a module are stored.
struct Integers {
  const StoredTensor* codes = nullptr;
  const StoredTensor* scales = nullptr;
  const StoredTensor* zeros = nullptr;  // nullptr: 0 throughout
  bool nibbles = false;
  bool is_signed = false;
  bool by_groups = false;
  bool by_outputs = false;  // groups of the first versions
  std::array<unsigned, 8> shifts = kReordered;

  int Value(uint32_t bits) const {
    const uint32_t half = nibbles ? 8 : 128;
    return is_signed ? static_cast<int>(bits ^ half) - static_cast<int>(half)
                     : static_cast<int>(bits);
  }
};

// As many lines of scales as of codes: groups have more than one input channel.
bool HasGroupsByOutputs(const StoredTensor& codes, const StoredTensor& scales) {
  return scales.shape.size() == 2 && codes.dtype != DType::kI32 &&
         scales.shape[0] == codes.shape[0];
}

// Could the tensors be what the rule says? Several rules may match a module, and the file has lost
// their order.
bool Fits(const Json* weight, const StoredTensor& codes, const StoredTensor& scales) {
  const Json* dtype = MemberOf(weight, "dtype");
  const Json* qscheme = MemberOf(weight, "qscheme");
  if (dtype == nullptr || !dtype->is_string() || qscheme == nullptr) return false;
  const auto& name = dtype->get_ref<const std::string&>();
  const bool stored = codes.dtype == DType::kI32
                          ? name == "int4" || name == "uint4"
                          : name == (codes.dtype == DType::kI8 ? "int8" : "uint8");
  if (!stored || (*qscheme == "per_group") != (scales.shape.size() == 2)) return false;
  if (*qscheme == "per_tensor") return scales.shape.empty() || scales.shape[0] == 1;
  if (*qscheme == "per_channel") return scales.shape[0] == codes.shape[0];
  const Json* group = MemberOf(weight, "group_size");
  const size_t along = HasGroupsByOutputs(codes, scales) ? 1 : 0;
  return group != nullptr && group->is_number_unsigned() &&
         group->get<uint64_t>() * scales.shape[along] == codes.shape[along];
}

// What the config says of the weights of the module, or nullptr.
const Json* WeightOf(const Checkpoint& source, const std::string& module,
                     const Integers& integers) {
  if (const Json* layers = SecondConfigField(source, "layer_quant_config")) {
    bool any = false;
    for (const auto& [pattern, spec] : layers->items()) {
      if (!Matches(pattern, module)) continue;
      any = true;
      const Json* weight = MemberOf(&spec, "weight");
      if (Fits(weight, *integers.codes, *integers.scales)) return weight;
    }
    if (any) return nullptr;
  }
  if (const Json* types = SecondConfigField(source, "layer_type_quant_config")) {
    for (const auto& [type, spec] : types->items()) {
      if (type.find("Linear") != std::string::npos) return MemberOf(&spec, "weight");
    }
  }
  return MemberOf(SecondConfigField(source, "global_quant_config"), "weight");
}

// Numbers of a tensor in the shape that it has once words are unpacked; a vector is one row.
Status ReadNumbers(const Checkpoint& source, const Integers& integers, const StoredTensor& tensor,
                   const SecondRange& range, std::vector<int>& out) {
  const uint64_t each = integers.nibbles ? 8 : 1;  // numbers in a word, or a byte
  const uint64_t first = range.column / each;
  const uint64_t width = (range.column + range.columns + each - 1) / each - first;
  // What is stored has one column, though, where it is a vector.
  const SecondRange stored = tensor.shape.size() < 2
                                 ? SecondRange{first, width, 0, 1}
                                 : SecondRange{range.row, range.rows, first, width};
  out.resize(range.rows * range.columns);
  if (!integers.nibbles) {
    std::vector<uint8_t> bytes;
    PREPACK_TRY(ReadSecond(source, tensor, stored, bytes));
    std::ranges::transform(bytes, out.begin(), [&](uint8_t b) { return integers.Value(b); });
    return {};
  }
  std::vector<uint32_t> packed;
  PREPACK_TRY(ReadSecond(source, tensor, stored, packed));
  for (uint64_t i = 0; i < out.size(); ++i) {
    const uint64_t column = range.column + i % range.columns;
    const uint32_t word = packed[i / range.columns * width + column / 8 - first];
    out[i] = integers.Value(word >> integers.shifts[column % 8] & 15U);
  }
  return {};
}

Status NotKnown(const std::string& module) {
  return Unsupported(fmt::format("module {}", module),
                     "the second decoder does not know how its integers are stored");
}

Result<Integers> FindIntegers(const Checkpoint& source, const std::string& module) {
  Integers found;
  PREPACK_TRY_ASSIGN(found.codes, SecondTensor(source, module + ".weight"));
  PREPACK_TRY_ASSIGN(found.scales, SecondTensor(source, module + ".weight_scale"));
  found.zeros = source.Find(module + ".weight_zero_point");
  const Json* dtype = MemberOf(WeightOf(source, module, found), "dtype");
  if (dtype == nullptr || !dtype->is_string()) return NotKnown(module);
  found.is_signed = !dtype->get_ref<const std::string&>().starts_with('u');
  found.nibbles = found.codes->dtype == DType::kI32;
  found.by_groups = found.scales->shape.size() == 2;
  found.by_outputs = HasGroupsByOutputs(*found.codes, *found.scales);
  for (const Json* order : SecondConfigValues(source, "pack_method")) {
    if (*order == "order") found.shifts = kInOrder;
  }
  return found;
}

// What [outputs, inputs] of the rows that are wanted are: codes by output channel.
Status ReadCodes(const Checkpoint& source, const Integers& integers, const SecondRows& wanted,
                 std::vector<int>& codes) {
  if (!integers.by_groups || integers.by_outputs) {
    return ReadNumbers(source, integers, *integers.codes,
                       {wanted.n0, wanted.rows, wanted.k0, wanted.inputs}, codes);
  }
  std::vector<int> columns;
  PREPACK_TRY(ReadNumbers(source, integers, *integers.codes,
                          {wanted.k0, wanted.inputs, wanted.n0, wanted.rows}, columns));
  codes.resize(columns.size());
  for (uint64_t k = 0; k < wanted.inputs; ++k) {
    for (uint64_t row = 0; row < wanted.rows; ++row) {
      codes[row * wanted.inputs + k] = columns[k * wanted.rows + row];
    }
  }
  return {};
}

// Scales [rows, groups] into `out`, and zero points [groups, rows] where there are any.
Status ReadParameters(const Checkpoint& source, const Integers& integers, const SecondRows& wanted,
                      std::vector<int>& zeros, DecodedRows& out) {
  PREPACK_TRY_ASSIGN(const SecondShape shape, ShapeOfSecond(source, *integers.scales));
  const uint64_t of_scales = integers.by_outputs ? shape.columns : shape.rows;
  const uint64_t groups = integers.by_groups ? of_scales : 1;
  if (groups == 0 || wanted.k % groups != 0) return NotKnown(wanted.module);
  out.group_of.resize(wanted.inputs);
  for (uint64_t i = 0; i < wanted.inputs; ++i) {
    out.group_of[i] = (wanted.k0 + i) / (wanted.k / groups);
  }
  const SecondGroupRange range = CountFromFirstGroup(out.group_of);
  if (integers.by_outputs) {
    const SecondRange own{wanted.n0, wanted.rows, range.first, range.count};
    PREPACK_TRY(ReadSecondFloats(source, *integers.scales, own, out.scales));
    if (integers.zeros == nullptr) return {};
    std::vector<int> lines;
    PREPACK_TRY(ReadNumbers(source, integers, *integers.zeros, own, lines));
    zeros.resize(lines.size());
    for (uint64_t i = 0; i < lines.size(); ++i) {
      zeros[i % range.count * wanted.rows + i / range.count] = lines[i];
    }
    return {};
  }
  std::vector<double> scales;
  if (integers.by_groups) {
    const SecondRange own{range.first, range.count, wanted.n0, wanted.rows};
    PREPACK_TRY(ReadSecondFloats(source, *integers.scales, own, scales));
    TransposeScales(scales, wanted.rows, out.scales);
    return integers.zeros == nullptr ? Status()
                                     : ReadNumbers(source, integers, *integers.zeros, own, zeros);
  }
  const bool one = shape.rows * shape.columns == 1;
  // A vector is one column of a matrix.
  PREPACK_TRY(ReadSecondFloats(source, *integers.scales,
                               {one ? 0 : wanted.n0, one ? 1 : wanted.rows, 0, 1}, scales));
  out.scales.resize(wanted.rows);
  for (uint64_t row = 0; row < wanted.rows; ++row) out.scales[row] = scales[one ? 0 : row];
  if (integers.zeros == nullptr) return {};
  std::vector<int> stored;
  PREPACK_TRY(ReadNumbers(source, integers, *integers.zeros,
                          {0, 1, one ? 0 : wanted.n0, one ? 1 : wanted.rows}, stored));
  zeros.resize(wanted.rows);
  for (uint64_t row = 0; row < wanted.rows; ++row) zeros[row] = stored[one ? 0 : row];
  return {};
}

Status DecodeIntegers(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  PREPACK_TRY_ASSIGN(const Integers integers, FindIntegers(source, wanted.module));
  std::vector<int> codes;
  std::vector<int> zeros;
  PREPACK_TRY(ReadCodes(source, integers, wanted, codes));
  PREPACK_TRY(ReadParameters(source, integers, wanted, zeros, out));
  out.steps.resize(codes.size());
  for (uint64_t row = 0; row < wanted.rows; ++row) {
    for (uint64_t k = 0; k < wanted.inputs; ++k) {
      const uint64_t at = row * wanted.inputs + k;
      const int zero = zeros.empty() ? 0 : zeros[out.group_of[k] * wanted.rows + row];
      out.steps[at] = static_cast<float>(codes[at] - zero);
    }
  }
  return {};
}

}  // namespace

Status DecodeQuark(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  const StoredTensor* codes = source.Find(wanted.module + ".weight");
  const bool integers =
      codes != nullptr && (codes->dtype == DType::kI32 || codes->dtype == DType::kI8 ||
                           source.Find(wanted.module + ".weight_zero_point") != nullptr);
  return integers ? DecodeIntegers(source, wanted, out) : DecodeFp8ByOutputs(source, wanted, out);
}

}  // namespace prepack
