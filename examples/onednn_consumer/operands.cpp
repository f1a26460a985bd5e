#include "operands.h"

#include <cmath>
#include <utility>

#include "floats.h"
#include "refusal.h"

namespace {

std::vector<uint64_t> ReadOrder(const Module& module, std::span<const std::byte> bytes) {
  std::vector<uint64_t> order;
  for (uint64_t j = 0; j < module.k; ++j) {
    const auto input = Load<int32_t>(bytes, j);
    if (input < 0 || static_cast<uint64_t>(input) >= module.k) {
      throw Malformed("module " + module.name, "part \"input_order\" names input " +
                                                   std::to_string(input) + " (expected 0 to " +
                                                   std::to_string(module.k - 1) + ")");
    }
    order.push_back(static_cast<uint64_t>(input));
  }
  return order;
}

void CheckInput(const Module& module, const Operands& operands) {
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

}  // namespace

MappedFolder::MappedFolder(std::string path) : path_(std::move(path)) {}

std::span<const std::byte> MappedFolder::Bytes(const Part& part) {
  const auto& [name, file] = *files_.try_emplace(part.file, path_ + "/" + part.file).first;
  return file.Bytes(part.offset, part.bytes);
}

Operands FindOperands(const Module& module, MappedFolder& folder) {
  const auto bytes = [&](const char* part) {
    const auto found = module.parts.find(part);
    return found == module.parts.end() ? std::span<const std::byte>() : folder.Bytes(found->second);
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
  CheckInput(module, operands);
  return operands;
}
