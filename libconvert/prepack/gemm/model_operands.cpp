#include "prepack/gemm/model_operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/gemm/strip_model.h"

namespace prepack {
namespace {

constexpr uint64_t kSizeLimit = uint64_t{1} << 31;

bool IsSize(uint64_t value) {
  return value > 0 && value < kSizeLimit;
}

Status CheckSlab(const PackedOperands& packed, const ModelInput& input) {
  if (!input.slab) return {};
  const auto [k0, inputs] = *input.slab;
  const uint64_t unit = SlabUnit(packed.k, packed.group_size);
  const bool inside = inputs != 0 && k0 < packed.k && inputs <= packed.k - k0;
  if (inside && k0 % unit == 0 && (inputs % unit == 0 || inputs == packed.k - k0)) return {};
  return Usage("GEMM: x", "a model cannot take this slab of input channels")
      .Found(fmt::format("{} from {} on", inputs, k0))
      .Expected(fmt::format("multiples of {} within {}", unit, packed.k));
}

}  // namespace

// Models go through K in runs that begin at every group and after a fixed number of input channels.
uint64_t SlabUnit(uint64_t k, uint64_t group_size) {
  const bool whole = group_size >= k || group_size % kRunInputs == 0;
  return whole ? kRunInputs : std::lcm(kRunInputs, group_size);
}

namespace {

// Finite, and a value of the type.
bool IsNumberOf(DType dtype, float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool finite = (bits & 0x7F800000U) != 0x7F800000U;
  if (dtype == DType::kBF16) return finite && (bits & 0xFFFFU) == 0;
  return finite && RoundTo(dtype, value) == value;
}

}  // namespace

Status CheckModelInput(const PackedOperands& packed, const ModelInput& input) {
  if (!IsSize(input.m) || !IsSize(packed.n) || !IsSize(packed.k)) {
    return Usage("GEMM", "a size is out of range")
        .Found(fmt::format("M = {}, N = {}, K = {}", input.m, packed.n, packed.k))
        .Expected("1 to 2^31 - 1");
  }
  if (!IsSize(packed.group_size) || !IsSize(packed.block_rows)) {
    return Usage("GEMM", "the number of channels per scale is out of range")
        .Found(fmt::format("{} output x {} input", packed.block_rows, packed.group_size))
        .Expected("1 to 2^31 - 1");
  }
  PREPACK_TRY(CheckSlab(packed, input));
  const uint64_t columns = InputColumns(packed, input);
  if (input.x.size() != input.m * columns) {
    return Usage("GEMM: x", "the size does not match the shape")
        .Found(fmt::format("{} elements", input.x.size()))
        .Expected(fmt::format("{}", input.m * columns));
  }
  OperandCheck check;
  check.Type("x", input.dtype, {DType::kBF16, DType::kF16, DType::kF32});
  if (!check.status().ok()) return check.status();
  for (const float value : input.x) {
    if (IsNumberOf(input.dtype, value)) continue;
    return Usage("GEMM: x", fmt::format("a value is not a {} number", DTypeName(input.dtype)))
        .Found(fmt::format("{}", value));
  }
  for (uint64_t row = 1; input.slab && row <= input.m; ++row) {
    if (input.x[row * columns - 1] == 0) continue;
    return Usage("GEMM: x", "an input channel outside of the slab is not zero")
        .Found(fmt::format("{}", input.x[row * columns - 1]));
  }
  return {};
}

Status CheckOutput(std::span<const float> y, uint64_t m, uint64_t n0, uint64_t n) {
  if (n0 % kModelUnit != 0 || n0 >= n) {
    return Usage("GEMM: y", "a model cannot start at this output channel")
        .Found(fmt::format("{}", n0))
        .Expected(fmt::format("a multiple of {} below {}", kModelUnit, n));
  }
  if (!y.empty() && y.size() % m == 0 && y.size() / m <= n - n0) return {};
  return Usage("GEMM: y", "the size does not match the shape")
      .Found(fmt::format("{} elements", y.size()))
      .Expected(fmt::format("a multiple of {}, at most {}", m, m * (n - n0)));
}

void OperandCheck::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void OperandCheck::Rule(bool ok, std::string_view rule, uint64_t found) {
  Rule(ok, rule, fmt::format("{}", found));
}

void OperandCheck::Rule(bool ok, std::string_view rule, std::string_view found) {
  if (!ok) Fail(Usage("GEMM", rule).Found(found));
}

void OperandCheck::Groups(const PackedOperands& packed) {
  Rule(packed.k % packed.group_size == 0, "the group size must divide K",
       fmt::format("group size {}, K = {}", packed.group_size, packed.k));
}

void OperandCheck::Type(std::string_view operand, DType found,
                        std::initializer_list<DType> allowed) {
  if (std::find(allowed.begin(), allowed.end(), found) != allowed.end()) return;
  std::string names;
  for (const DType dtype : allowed) {
    if (!names.empty()) names += " or ";
    names += DTypeName(dtype);
  }
  Fail(Usage(fmt::format("GEMM: {}", operand), "the kernel does not take this type")
           .Found(DTypeName(found))
           .Expected(names));
}

void OperandCheck::Bytes(std::string_view operand, std::span<const std::byte> bytes,
                         std::initializer_list<uint64_t> factors) {
  const std::optional<uint64_t> expected =
      CheckedProduct(std::span(factors.begin(), factors.size()));
  if (expected && bytes.size() == *expected) return;
  Fail(Usage(fmt::format("GEMM: {}", operand), "the size does not match the shape")
           .Found(fmt::format("{} bytes", bytes.size()))
           .Expected(expected ? fmt::format("{}", *expected) : "a number below 2^64"));
}

void OperandCheck::Absent(std::string_view operand, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  Fail(Usage(fmt::format("GEMM: {}", operand), "the layout has no such tensor")
           .Found(fmt::format("{} bytes", bytes.size())));
}

void OperandCheck::Bias(const PackedOperands& packed, std::initializer_list<DType> allowed) {
  if (packed.bias.empty()) return;
  Type("bias", packed.bias_dtype, allowed);
  Bytes("bias", packed.bias, {packed.n, DTypeBits(packed.bias_dtype) / 8});
}

std::vector<float> LoadFloats(DType dtype, std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / (DTypeBits(dtype) / 8));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      values[i] = Load<float>(bytes, i);
    } else if (dtype == DType::kU8) {
      values[i] = F8E8M0ToF32(Load<uint8_t>(bytes, i));
    } else {
      const auto bits = Load<uint16_t>(bytes, i);
      values[i] = dtype == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
    }
  }
  return values;
}

}  // namespace prepack
