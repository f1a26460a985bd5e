#ifndef PREPACK_BASE_SCRATCH_H_
#define PREPACK_BASE_SCRATCH_H_

// Memory for as long as a function runs. Threads keep what their functions had, so that the same
// work over and over allocates nothing.

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "base/page_buffer.h"

namespace prepack {

namespace internal {

// A buffer of this thread, of at least so many bytes, that nobody has.
PageBuffer TakeScratch(std::size_t bytes);
void ReturnScratch(PageBuffer buffer) noexcept;

}  // namespace internal

// `count` elements, which begin at a page. Ends in the thread that it began in.
template <typename T>
class Scratch {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // Elements hold anything.
  explicit Scratch(std::size_t count)
      : buffer_(internal::TakeScratch(count * sizeof(T))), count_(count) {}
  Scratch(std::size_t count, const T& value) : Scratch(count) { std::fill(begin(), end(), value); }
  ~Scratch() { internal::ReturnScratch(std::move(buffer_)); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data() { return reinterpret_cast<T*>(buffer_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(buffer_.data()); }
  std::size_t size() const { return count_; }
  T* begin() { return data(); }
  T* end() { return data() + count_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + count_; }
  T& operator[](std::size_t index) { return data()[index]; }
  const T& operator[](std::size_t index) const { return data()[index]; }

 private:
  PageBuffer buffer_;
  std::size_t count_;
};

}  // namespace prepack

#endif  // PREPACK_BASE_SCRATCH_H_
