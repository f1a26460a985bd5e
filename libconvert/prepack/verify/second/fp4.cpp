// The second path for FP4: one byte is two weights, that of the even input channel in the low half.
// What differs are the names of the tensors, and the scales:
//
//     compressed-tensors  MODULE.weight_packed, .weight_scale, .weight_global_scale, which divides
//     ModelOpt, Quark     MODULE.weight, .weight_scale, .weight_scale_2, which multiplies
//     DeepSeek V4         MODULE.weight, .scale
//     gpt-oss             EXPERTS.X_blocks [E, N, K/32, 16] and EXPERTS.X_scales [E, N, K/32]: the
//                         modules are EXPERTS.X.e
//     ModelOpt, stacked   EXPERTS.X [E, K/2, N] and EXPERTS.X_weight_scale [E, K/16, N], with
//                         EXPERTS.X_weight_scale_2
//
// A scale is an exponent (U8, F8_E8M0) or an FP8 number; with a global one it is their product or
// quotient in f32.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "prepack/base/float_convert.h"
#include "prepack/base/status.h"
#include "prepack/kernels/kernels.h"
#include "prepack/verify/second/decoder.h"
#include "prepack/verify/second/fields.h"
#include "prepack/verify/second/tensors.h"

namespace prepack {
namespace {

// The tensors of a module, and which of their matrices it is.
struct Fp4Tensors {
  const StoredTensor* codes = nullptr;
  const StoredTensor* scales = nullptr;
  const StoredTensor* global = nullptr;
  bool global_divides = false;
  bool inputs_first = false;  // [K/2, N] rather than [N, K/2]
  uint64_t matrix = 0;
};

bool IsBytes(const StoredTensor* tensor) {
  return tensor != nullptr && (tensor->dtype == DType::kU8 || tensor->dtype == DType::kI8);
}

Fp4Tensors FindFp4(const Checkpoint& source, const std::string& module) {
  Fp4Tensors found;
  const auto look = [&](const std::string& name) {
    for (const char* codes : {".weight_packed", ".weight"}) {
      found.codes = source.Find(name + codes);
      if (IsBytes(found.codes)) break;
      found.codes = nullptr;
    }
    for (const char* scales : {".scale", ".weight_scale_inv", ".weight_scale"}) {
      if (const StoredTensor* tensor = source.Find(name + scales)) found.scales = tensor;
    }
    found.global = source.Find(name + ".weight_global_scale");
    found.global_divides = found.global != nullptr;
    if (found.global == nullptr) found.global = source.Find(name + ".weight_scale_2");
  };
  look(module);
  if (found.codes != nullptr && found.codes->shape.size() == 2) return found;
  std::string stem;
  if (!CutNumber(module, stem, found.matrix)) return {};
  look(stem);
  if (found.codes == nullptr) {
    found.codes = source.Find(stem + "_blocks");
    found.scales = source.Find(stem + "_scales");
  }
  if (found.codes == nullptr) {
    found.codes = source.Find(stem);
    found.scales = source.Find(stem + "_weight_scale");
    found.global = source.Find(stem + "_weight_scale_2");
    found.inputs_first = true;
    if (found.codes != nullptr && found.codes->shape.size() != 3) return {};
  }
  const bool stacked =
      IsBytes(found.codes) && found.codes->shape.size() > 2 && found.matrix < found.codes->shape[0];
  return stacked ? found : Fp4Tensors{};
}

// (−1)^s · 1.m · 2^(e − 1), or 0.m if e is 0, from the bits s e e m.
float ComputeFp4(unsigned bits) {
  const int exponent = static_cast<int>(bits >> 1 & 3U);
  const double fraction = bits % 2 == 0 ? 0 : 0.5;
  const double size = exponent == 0 ? fraction : std::ldexp(1 + fraction, exponent - 1);
  return static_cast<float>(bits >= 8 ? -size : size);
}

// All of them, by their bits.
const std::array<float, kSecondCodes>& Fp4Numbers() {
  static const std::array<float, kSecondCodes> numbers = [] {
    std::array<float, kSecondCodes> all{};
    for (unsigned bits = 0; bits < 16; ++bits) all[bits] = ComputeFp4(bits);
    return all;
  }();
  return numbers;
}

// Bytes [first, first + count) of each of the rows of the matrix, of `width` bytes.
Status ReadLines(const Checkpoint& source, const StoredTensor& tensor, uint64_t first_row,
                 uint64_t rows, uint64_t width, uint64_t first, uint64_t count,
                 std::vector<uint8_t>& out) {
  out.resize(rows * count);
  return source.ReadRuns(
      tensor,
      {.offset = first_row * width + first, .run_bytes = count, .stride = width, .runs = rows},
      std::as_writable_bytes(std::span(out)));
}

Status ReadGlobal(const Checkpoint& source, const Fp4Tensors& found, float& global) {
  std::vector<double> numbers;
  PREPACK_TRY(ReadSecondFloats(source, *found.global, {0, 1, 0, 1}, numbers));
  global = static_cast<float>(numbers.front());
  return {};
}

uint64_t SizeFrom(const TensorShape& shape, size_t first) {
  uint64_t product = 1;  // as the size of a tensor, it does not overflow
  for (size_t i = first; i < shape.size(); ++i) product *= shape[i];
  return product;
}

}  // namespace

bool HasSecondFp4(const Checkpoint& source, const SecondRows& wanted) {
  const Fp4Tensors found = FindFp4(source, wanted.module);
  if (found.codes == nullptr || found.scales == nullptr || wanted.k == 0) return false;
  if (found.inputs_first) return found.codes->shape[1] * 2 == wanted.k;
  const size_t rows = found.codes->shape.size() == 2 ? 0 : 1;  // the dimension that counts them
  return SizeFrom(found.codes->shape, rows + 1) == wanted.k / 2 && wanted.k % 2 == 0;
}

namespace {

// Experts whose inputs come first: a line of the file is an input channel, or two of them.
Status DecodeInputsFirst(const Checkpoint& source, const Fp4Tensors& found,
                         const SecondRows& wanted, DecodedRows& out) {
  const TensorShape& codes = found.codes->shape;
  const TensorShape& scales = found.scales->shape;
  const bool fits = codes[1] * 2 == wanted.k && scales.size() == 3 && scales[0] == codes[0] &&
                    scales[1] * 16 == wanted.k && scales[2] == codes[2] &&
                    found.global != nullptr && found.scales->dtype == DType::kF8E4M3 &&
                    wanted.rows != 0 && wanted.n0 <= codes[2] &&
                    wanted.rows <= codes[2] - wanted.n0;
  if (!fits) return Malformed(source.Where(*found.codes), "not FP4 of the expected size");
  std::vector<uint8_t> bytes;
  PREPACK_TRY(ReadLines(source, *found.codes, found.matrix * codes[1] + wanted.k0 / 2,
                        wanted.inputs / 2, codes[2], wanted.n0, wanted.rows, bytes));
  std::vector<uint8_t>& split = out.buffers.codes;
  split.resize(wanted.rows * wanted.inputs);
  for (uint64_t pair = 0; pair < wanted.inputs / 2; ++pair) {
    for (uint64_t row = 0; row < wanted.rows; ++row) {
      const uint8_t byte = bytes[pair * wanted.rows + row];
      split[row * wanted.inputs + 2 * pair] = byte & 15U;
      split[row * wanted.inputs + 2 * pair + 1] = byte >> 4;
    }
  }
  PutSecondCodes(split, Fp4Numbers(), wanted.takes_codes, out);
  out.group_of.resize(wanted.inputs);
  for (uint64_t i = 0; i < wanted.inputs; ++i) out.group_of[i] = (wanted.k0 + i) / 16;
  const SecondGroupRange range = CountFromFirstGroup(out.group_of);
  PREPACK_TRY(ReadLines(source, *found.scales, found.matrix * scales[1] + range.first, range.count,
                        codes[2], wanted.n0, wanted.rows, bytes));
  float global = 1;
  PREPACK_TRY(ReadGlobal(source, found, global));
  out.scales.resize(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    const float scale = F8E4M3ToF32(bytes[i]) * global;
    out.scales[i % wanted.rows * range.count + i / wanted.rows] = static_cast<double>(scale);
  }
  return {};
}

}  // namespace

Status DecodeFp4(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  const Fp4Tensors found = FindFp4(source, wanted.module);
  if (found.codes == nullptr || found.scales == nullptr) {
    return Unsupported(fmt::format("module {}", wanted.module),
                       "the second decoder does not find its codes and scales");
  }
  if (found.inputs_first) return DecodeInputsFirst(source, found, wanted, out);
  const size_t experts = found.codes->shape.size() == 2 ? 0 : 1;
  const uint64_t n = found.codes->shape[experts];
  const TensorShape& scales = found.scales->shape;
  const uint64_t groups = scales.empty() ? 0 : scales.back();
  const bool fits = SizeFrom(found.codes->shape, experts + 1) * 2 == wanted.k && groups != 0 &&
                    wanted.k % groups == 0 && scales.size() == experts + 2 &&
                    std::equal(scales.begin(), scales.end() - 1, found.codes->shape.begin()) &&
                    wanted.rows != 0 && wanted.n0 <= n && wanted.rows <= n - wanted.n0;
  if (!fits) return Malformed(source.Where(*found.codes), "not FP4 of the expected size");

  const uint64_t first_row = found.matrix * n + wanted.n0;
  std::vector<uint8_t> bytes;
  PREPACK_TRY(ReadLines(source, *found.codes, first_row, wanted.rows, wanted.k / 2, wanted.k0 / 2,
                        wanted.inputs / 2, bytes));
  std::vector<uint8_t>& codes = out.buffers.codes;
  codes.resize(2 * bytes.size());
  Kernels().split_small_fields(bytes.data(), bytes.size(), 4, 0,
                               reinterpret_cast<int8_t*>(codes.data()));
  PutSecondCodes(codes, Fp4Numbers(), wanted.takes_codes, out);

  const uint64_t group_size = wanted.k / groups;
  out.group_of.resize(wanted.inputs);
  for (uint64_t i = 0; i < wanted.inputs; ++i) out.group_of[i] = (wanted.k0 + i) / group_size;
  const SecondGroupRange range = CountFromFirstGroup(out.group_of);
  PREPACK_TRY(ReadLines(source, *found.scales, first_row, wanted.rows, groups, range.first,
                        range.count, bytes));
  const bool fp8 = found.scales->dtype == DType::kF8E4M3;
  if (!fp8 && found.scales->dtype != DType::kU8 && found.scales->dtype != DType::kF8E8M0) {
    return Unsupported(source.Where(*found.scales),
                       "the second decoder does not know this kind of scales");
  }
  float global = 1;
  if (found.global != nullptr) PREPACK_TRY(ReadGlobal(source, found, global));
  out.scales.clear();
  for (const uint8_t byte : bytes) {
    const float stored = fp8 ? F8E4M3ToF32(byte) : F8E8M0ToF32(byte);
    const float scale = found.global_divides ? stored / global : stored * global;
    out.scales.push_back(static_cast<double>(scale));
  }
  return {};
}

}  // namespace prepack
