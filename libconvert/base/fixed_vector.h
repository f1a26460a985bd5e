#ifndef PREPACK_BASE_FIXED_VECTOR_H_
#define PREPACK_BASE_FIXED_VECTOR_H_

// A list of at most kMost elements, which lie in the list itself: copying one allocates nothing.

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>

namespace prepack {

template <typename T, std::size_t kMost>
class FixedVector {
 public:
  FixedVector() = default;
  // At most kMost elements, here and in push_back; more throw std::out_of_range.
  FixedVector(std::initializer_list<T> elements) {
    for (const T& element : elements) push_back(element);
  }
  void push_back(const T& element) {
    elements_.at(size_) = element;
    ++size_;
  }

  static constexpr std::size_t capacity() { return kMost; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return elements_.data(); }
  T* end() { return elements_.data() + size_; }
  const T* begin() const { return elements_.data(); }
  const T* end() const { return elements_.data() + size_; }
  // Of an index below size().
  T& operator[](std::size_t index) { return elements_[index]; }
  const T& operator[](std::size_t index) const { return elements_[index]; }
  const T& front() const { return elements_.front(); }

  friend bool operator==(const FixedVector& a, const FixedVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<T, kMost> elements_ = {};
  std::size_t size_ = 0;
};

}  // namespace prepack

#endif  // PREPACK_BASE_FIXED_VECTOR_H_
