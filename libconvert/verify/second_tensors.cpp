#include "verify/second_tensors.h"

#include <fmt/format.h>

#include <bit>

#include "base/float_convert.h"

namespace prepack {

Result<const StoredTensor*> SecondTensor(const Checkpoint& source, const std::string& name) {
  const StoredTensor* tensor = source.Find(name);
  if (tensor == nullptr) return Malformed(fmt::format("tensor {}", name), "it is missing");
  return tensor;
}

Status ReadSecondFloats(const Checkpoint& source, const StoredTensor& tensor,
                        const SecondRange& range, std::vector<double>& out) {
  out.clear();
  if (tensor.dtype == DType::kF32) {
    std::vector<uint32_t> bits;
    Status status = ReadSecond(source, tensor, range, bits);
    for (const uint32_t value : bits) {
      out.push_back(static_cast<double>(std::bit_cast<float>(value)));
    }
    return status;
  }
  std::vector<uint16_t> bits;
  Status status = ReadSecond(source, tensor, range, bits);
  const bool bf16 = tensor.dtype == DType::kBF16;
  for (const uint16_t value : bits) {
    out.push_back(static_cast<double>(bf16 ? BF16ToF32(value) : F16ToF32(value)));
  }
  return status;
}

const Json* SecondConfigField(const Checkpoint& source, const std::string& key) {
  const Json& config = source.config();
  const auto quantization = config.find("quantization_config");
  if (quantization == config.end() || !quantization->is_object()) return nullptr;
  const auto field = quantization->find(key);
  return field == quantization->end() || field->is_null() ? nullptr : &*field;
}

}  // namespace prepack
