#include "operands.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <utility>

#include "refusal.h"

namespace {

// --- Files ---

std::span<const std::byte> MapFile(const std::string& path) {
  const auto system_failure = [&](int error) {
    return Refusal(Exit::kSystem, path + ": " + std::strerror(error));
  };
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw system_failure(errno);
  struct stat status {};
  const bool known = fstat(file, &status) == 0;
  const bool usable = known && S_ISREG(status.st_mode) && status.st_size > 0;
  const auto size = static_cast<size_t>(status.st_size);
  void* start = usable ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  const int error = errno;
  close(file);  // the mapping stays
  if (known && !usable) throw Malformed(path, "it is empty, or no plain file");
  if (start == MAP_FAILED) throw system_failure(error);
  return {static_cast<const std::byte*>(start), size};
}

// --- Parts ---

std::vector<uint64_t> ReadOrder(const Module& module, std::span<const std::byte> bytes) {
  std::vector<uint64_t> order(module.k);
  for (uint64_t k = 0; k < module.k; ++k) {
    const auto input = Load<int32_t>(bytes, k);
    if (input < 0 || static_cast<uint64_t>(input) >= module.k) {
      throw Malformed("module " + module.name, "part \"input_order\" names input " +
                                                   std::to_string(input) + " (expected 0 to " +
                                                   std::to_string(module.k - 1) + ")");
    }
    order[k] = static_cast<uint64_t>(input);
  }
  return order;
}

void CheckInputScale(const Module& module, const Operands& operands) {
  if (std::isfinite(operands.input_scale) && operands.input_scale > 0 &&
      operands.input_zero_point >= -128 && operands.input_zero_point <= 127) {
    return;
  }
  throw Malformed("module " + module.name,
                  "the scale of its inputs must be above 0 and their zero point fit in 8 bits "
                  "(found " +
                      std::to_string(operands.input_scale) + " and " +
                      std::to_string(operands.input_zero_point) + ")");
}

// --- Inputs ---

struct RowScale {
  float scale = 1;
  int32_t zero_point = 0;
};

// Chooses how to quantize one row of inputs.
RowScale ScaleOf(const Module& module, const Operands& operands, std::span<const float> row) {
  constexpr float kLeastRange = 1e-10F;  // gives a row of zeros a scale
  if (!module.activations.dynamic) {
    return {.scale = operands.input_scale, .zero_point = operands.input_zero_point};
  }
  const auto [least, largest] = std::ranges::minmax(row);
  if (module.activations.symmetric) {
    return {.scale = std::max({-least, largest, kLeastRange}) / 127, .zero_point = 0};
  }
  // The codes -128 to 127 cover the range of the row, which is widened to include 0.
  const float low = std::min(least, 0.0F);
  const float scale = std::max(std::max(largest, 0.0F) - low, kLeastRange) / 255;
  return {.scale = scale, .zero_point = static_cast<int32_t>(std::nearbyint(-128 - low / scale))};
}

template <typename T>
void Append(T value, std::vector<std::byte>& bytes) {
  const auto* const first = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), first, first + sizeof(T));
}

void QuantizeRow(std::span<const float> row, const RowScale& by, KernelInput& input) {
  const auto zero_point = static_cast<float>(by.zero_point);
  for (const float value : row) {
    const float code = std::clamp(std::nearbyint(value / by.scale) + zero_point, -128.0F, 127.0F);
    Append(static_cast<int8_t>(code), input.data);
    input.values.push_back((code - zero_point) * by.scale);
  }
  input.scales.push_back(by.scale);
  input.zero_points.push_back(by.zero_point);
}

std::vector<float> Reordered(std::span<const float> x, const Module& module,
                             const Operands& operands) {
  std::vector<float> reordered(x.begin(), x.end());
  if (operands.input_order.empty()) return reordered;
  for (uint64_t i = 0; i < x.size(); ++i) {
    const uint64_t column = i % module.k;
    reordered[i] = x[i - column + operands.input_order[column]];
  }
  return reordered;
}

float FromF16(uint16_t bits) {
  const float sign = bits >> 15 != 0 ? -1.0F : 1.0F;
  const uint32_t shifted = (bits & 0x7FFFU) << 13;  // exponent and mantissa where F32 has them
  const bool finite = (bits & 0x7C00U) != 0x7C00U;
  // The exponent of F32 has another bias. Multiplying corrects it for subnormal numbers, too.
  return sign * (finite ? std::bit_cast<float>(shifted) * 0x1p112F
                        : std::bit_cast<float>(shifted | 0x7F800000U));
}

}  // namespace

MappedFolder::MappedFolder(std::string path) : path_(std::move(path)) {}

MappedFolder::~MappedFolder() {
  for (const auto& [name, file] : files_) {
    if (!file.empty()) munmap(const_cast<std::byte*>(file.data()), file.size());
  }
}

std::span<const std::byte> MappedFolder::Bytes(const Part& part) {
  const std::string path = path_ + "/" + part.file;
  std::span<const std::byte>& file = files_[part.file];
  if (file.empty()) file = MapFile(path);
  if (part.bytes > file.size() || part.offset > file.size() - part.bytes) {
    throw Malformed(path, "a tensor of " + std::to_string(part.bytes) + " bytes at " +
                              std::to_string(part.offset) + " is not inside the file of " +
                              std::to_string(file.size()) + " bytes. Was it cut off?");
  }
  return file.subspan(part.offset, part.bytes);
}

Operands FindOperands(const Module& module, MappedFolder& files) {
  const auto bytes = [&](const char* part) {
    const auto found = module.parts.find(part);
    return found == module.parts.end() ? std::span<const std::byte>() : files.Bytes(found->second);
  };
  Operands operands{.weight = bytes("weight"),
                    .scale = bytes("weight_scale"),
                    .zero_point = bytes("weight_zero_point"),
                    .bias = bytes("bias"),
                    .weight_sum = ReadFloats("F32", bytes("weight_sum"))};
  if (module.Has("bias")) {
    operands.bias_values = ReadFloats(module.parts.at("bias").dtype, operands.bias);
  }
  if (module.Has("input_order")) operands.input_order = ReadOrder(module, bytes("input_order"));
  if (module.Has("input_scale")) operands.input_scale = Load<float>(bytes("input_scale"), 0);
  if (module.Has("input_zero_point")) {
    operands.input_zero_point = Load<int32_t>(bytes("input_zero_point"), 0);
  }
  CheckInputScale(module, operands);
  return operands;
}

KernelInput MakeKernelInput(const Module& module, const Operands& operands,
                            const std::string& dtype, std::span<const float> x) {
  const std::vector<float> reordered = Reordered(x, module, operands);
  KernelInput input;
  input.values.reserve(x.size());
  if (dtype == "I8") {
    for (uint64_t i = 0; i < x.size(); i += module.k) {
      const std::span<const float> row = std::span(reordered).subspan(i, module.k);
      QuantizeRow(row, ScaleOf(module, operands, row), input);
    }
    return input;
  }
  for (const float value : reordered) {
    const uint16_t half = ToBF16(value);
    input.values.push_back(FromBF16(half));
    dtype == "BF16" ? Append(half, input.data) : Append(FromBF16(half), input.data);
  }
  return input;
}

uint16_t ToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float FromBF16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

std::vector<float> ReadFloats(const std::string& dtype, std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / (dtype == "F32" ? sizeof(float) : sizeof(uint16_t)));
  for (uint64_t i = 0; i < values.size(); ++i) {
    if (dtype == "F32") {
      values[i] = Load<float>(bytes, i);
    } else {
      const auto half = Load<uint16_t>(bytes, i);
      values[i] = dtype == "BF16" ? FromBF16(half) : FromF16(half);
    }
  }
  return values;
}
