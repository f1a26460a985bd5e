#include "diff/tensor_diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/cancellation.h"
#include "formats/stored_linear.h"

namespace prepack {
namespace {

// A multiple of every element size.
constexpr uint64_t kChunk = uint64_t{1} << 20;

bool IsFloat(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

Result<TensorDifferences> CompareFloats(const Checkpoint& a, const StoredTensor& tensor_a,
                                        const Checkpoint& b, const StoredTensor& tensor_b) {
  TensorDifferences differences;
  const uint64_t count = tensor_a.bytes * 8 / DTypeBits(tensor_a.dtype);
  std::vector<float> left;
  std::vector<float> right;
  for (uint64_t first = 0; first < count; first += kChunk) {
    if (CancellationRequested()) return Interrupted(tensor_a.name);
    left.resize(static_cast<size_t>(std::min<uint64_t>(kChunk, count - first)));
    right.resize(left.size());
    Status status = ReadFloats(a, tensor_a, first, left);
    if (status.ok()) status = ReadFloats(b, tensor_b, first, right);
    if (!status.ok()) return status;
    for (size_t i = 0; i < left.size(); ++i) {
      if (left[i] == right[i] || (std::isnan(left[i]) && std::isnan(right[i]))) continue;
      const double distance =
          std::abs(static_cast<double>(left[i]) - static_cast<double>(right[i]));
      ++differences.elements;
      differences.max_absolute =
          std::max(differences.max_absolute,
                   std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance);
    }
  }
  if (differences.elements != 0) differences.verdict = DiffVerdict::kDifferent;
  return differences;
}

Result<TensorDifferences> CompareBytes(const Checkpoint& a, const StoredTensor& tensor_a,
                                       const Checkpoint& b, const StoredTensor& tensor_b) {
  TensorDifferences differences;
  const size_t each = DTypeBits(tensor_a.dtype) / 8;  // 0: less than a byte
  std::vector<std::byte> left;
  std::vector<std::byte> right;
  for (uint64_t offset = 0; offset < tensor_a.bytes; offset += kChunk) {
    if (CancellationRequested()) return Interrupted(tensor_a.name);
    left.resize(static_cast<size_t>(std::min(kChunk, tensor_a.bytes - offset)));
    right.resize(left.size());
    Status status = a.Read(tensor_a, offset, left);
    if (status.ok()) status = b.Read(tensor_b, offset, right);
    if (!status.ok()) return status;
    if (left == right) continue;
    differences.verdict = DiffVerdict::kDifferent;
    if (each == 0) continue;
    for (size_t i = 0; i + each <= left.size(); i += each) {
      if (std::memcmp(left.data() + i, right.data() + i, each) != 0) ++differences.elements;
    }
  }
  return differences;
}

}  // namespace

Result<TensorDifferences> CompareTensors(const Checkpoint& a, const StoredTensor& tensor_a,
                                         const Checkpoint& b, const StoredTensor& tensor_b) {
  TensorDifferences differences;
  if (tensor_a.shape != tensor_b.shape) {
    differences.verdict = DiffVerdict::kShapeDiffers;
    return differences;
  }
  if (IsFloat(tensor_a.dtype) && IsFloat(tensor_b.dtype)) {
    Result<TensorDifferences> bytes = TensorDifferences{};
    if (tensor_a.dtype == tensor_b.dtype) {
      bytes = CompareBytes(a, tensor_a, b, tensor_b);
      if (!bytes.ok() || bytes->verdict == DiffVerdict::kIdentical) return bytes;
    }
    Result<TensorDifferences> values = CompareFloats(a, tensor_a, b, tensor_b);
    // Zeros of another sign, NaNs of another payload: other bytes all the same.
    if (values.ok() && tensor_a.dtype == tensor_b.dtype) {
      values->verdict = DiffVerdict::kDifferent;
      values->elements = bytes->elements;
    }
    return values;
  }
  if (tensor_a.dtype != tensor_b.dtype) {
    differences.verdict = DiffVerdict::kDifferent;
    return differences;
  }
  return CompareBytes(a, tensor_a, b, tensor_b);
}

}  // namespace prepack
