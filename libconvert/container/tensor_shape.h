#ifndef PREPACK_CONTAINER_TENSOR_SHAPE_H_
#define PREPACK_CONTAINER_TENSOR_SHAPE_H_

// The dimensions of a tensor. Models have hundreds of thousands of tensors, nearly all of one or
// two dimensions: those take no memory of their own.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

namespace prepack {

class TensorShape {
 public:
  TensorShape() = default;
  explicit TensorShape(std::span<const uint64_t> dims) : size_(dims.size()) {
    if (size_ > kInside) inside_[0] = std::bit_cast<uint64_t>(new uint64_t[size_]);
    std::ranges::copy(dims, data());
  }
  // Implicit, as it is where a vector stands for a shape.
  TensorShape(const std::vector<uint64_t>& dims) : TensorShape(std::span(dims)) {}
  TensorShape(std::initializer_list<uint64_t> dims) : TensorShape(std::span(dims)) {}
  TensorShape(const TensorShape& other) : TensorShape(std::span(other.data(), other.size())) {}
  TensorShape(TensorShape&& other) noexcept { Swap(other); }
  TensorShape& operator=(TensorShape other) noexcept {
    Swap(other);
    return *this;
  }
  ~TensorShape() {
    if (size_ > kInside) delete[] Outside();
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const uint64_t* data() const { return size_ > kInside ? Outside() : inside_.data(); }
  const uint64_t* begin() const { return data(); }
  const uint64_t* end() const { return data() + size_; }
  // Of an index below size().
  uint64_t operator[](size_t index) const { return data()[index]; }
  // Of a shape that is not empty.
  uint64_t back() const { return data()[size_ - 1]; }

  friend bool operator==(const TensorShape& a, const TensorShape& b) {
    return std::ranges::equal(a, b);
  }

 private:
  static constexpr size_t kInside = 2;

  uint64_t* data() { return size_ > kInside ? Outside() : inside_.data(); }
  // Of more than kInside dimensions: where they are, which is what inside_[0] holds.
  uint64_t* Outside() const { return std::bit_cast<uint64_t*>(inside_[0]); }
  void Swap(TensorShape& other) noexcept {
    std::swap(size_, other.size_);
    std::swap(inside_, other.inside_);
  }

  size_t size_ = 0;
  std::array<uint64_t, kInside> inside_ = {};
};

}  // namespace prepack

#endif  // PREPACK_CONTAINER_TENSOR_SHAPE_H_
