#include "verify/second_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "base/float_convert.h"

namespace prepack {

Result<const StoredTensor*> SecondTensor(const Checkpoint& source, const std::string& name) {
  const StoredTensor* tensor = source.Find(name);
  if (tensor == nullptr) {
    return Unsupported(fmt::format("tensor {}", name), "the second decoder does not find it");
  }
  return tensor;
}

Result<SecondShape> ShapeOfSecond(const Checkpoint& source, const StoredTensor& tensor) {
  const TensorShape& shape = tensor.shape;
  if (shape.size() > 2) {
    return Unsupported(source.Where(tensor), "the second decoder takes matrices only");
  }
  return SecondShape{.rows = shape.empty() ? 1 : shape[0],
                     .columns = shape.size() < 2 ? 1 : shape[1]};
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
  const bool bf16 = tensor.dtype == DType::kBF16;
  if (!bf16 && tensor.dtype != DType::kF16) {
    return Unsupported(source.Where(tensor), "the second decoder does not read such numbers")
        .Found(DTypeName(tensor.dtype));
  }
  std::vector<uint16_t> bits;
  Status status = ReadSecond(source, tensor, range, bits);
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

std::vector<const Json*> SecondConfigValues(const Checkpoint& source, const std::string& key) {
  std::vector<const Json*> found;
  std::vector<const Json*> left;
  const auto quantization = source.config().find("quantization_config");
  if (quantization != source.config().end()) left.push_back(&*quantization);
  while (!left.empty()) {
    const Json& value = *left.back();
    left.pop_back();
    if (!value.is_object()) continue;
    for (const auto& [name, member] : value.items()) {
      if (name == key && !member.is_null()) found.push_back(&member);
      left.push_back(&member);
    }
  }
  return found;
}

std::vector<uint64_t> SecondConfigNumbers(const Checkpoint& source, const std::string& key) {
  std::vector<uint64_t> numbers;
  for (const Json* value : SecondConfigValues(source, key)) {
    if (!value->is_number_integer()) continue;
    const auto number = value->get<int64_t>();
    if (number > 0) numbers.push_back(static_cast<uint64_t>(number));
  }
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

}  // namespace prepack
