#include "verify/second_tensors.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

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
  if (shape.size() > 3) {
    return Unsupported(source.Where(tensor), "the second decoder takes matrices only");
  }
  SecondShape matrix{.rows = shape.empty() ? 1 : shape[0],
                     .columns = shape.size() < 2 ? 1 : shape[shape.size() - 1]};
  if (shape.size() == 3)
    matrix.rows *= shape[1];  // as the size of the tensor, it does not overflow
  return matrix;
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
  if (tensor.dtype == DType::kF8E8M0 || tensor.dtype == DType::kU8) {
    // A power of two, of which the byte is the exponent of an f32 of no mantissa; 0 is half of the
    // smallest of those. Other bytes than scales are never read as numbers here.
    std::vector<uint8_t> exponents;
    Status status = ReadSecond(source, tensor, range, exponents);
    for (const uint8_t exponent : exponents) {
      out.push_back(exponent == 0xFF ? std::nan("") : std::exp2(exponent - 127.0));
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

}  // namespace prepack
