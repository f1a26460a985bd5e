#pragma once

// Memory that files are read into and written from.
//
// It begins at a page. Where a copy's target lies a few bytes further into its page than its
// source, some CPUs (Zen 3) copy four times slower; data in files mostly begins at a page or a
// cache line, and what malloc gives for large blocks begins 16 bytes behind one. And it is not
// cleared: what is about to be read or packed over need not be written first.

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace prepack {

inline constexpr std::size_t kPageBufferAlignment = 4096;

template <typename T>
struct PageAllocator {
  using value_type = T;

  PageAllocator() = default;
  template <typename U>
  PageAllocator(const PageAllocator<U>& /*other*/) {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(
        ::operator new (count * sizeof(T), std::align_val_t{kPageBufferAlignment}));
  }
  void deallocate(T* memory, std::size_t /*count*/) {
    ::operator delete (memory, std::align_val_t{kPageBufferAlignment});
  }
  // New elements without a value stay as they are.
  template <typename U>
  void construct(U* element) {
    static_assert(std::is_trivially_default_constructible_v<U>);
    ::new (static_cast<void*>(element)) U;
  }
  template <typename U, typename... Arguments>
  void construct(U* element, Arguments&&... arguments) {
    std::construct_at(element, std::forward<Arguments>(arguments)...);
  }

  friend bool operator==(const PageAllocator&, const PageAllocator&) { return true; }
};

using PageBuffer = std::vector<std::byte, PageAllocator<std::byte>>;

// Gives what was freed back to the system, where the allocator keeps it: reading the headers of a
// large model leaves holes that what is allocated later does not fill.
void GiveBackFreed();

// A list of at most kMost elements, which lie in the list itself: copying one allocates nothing.

template <typename T, std::size_t kMost>
class FixedVector {
 public:
  constexpr FixedVector() = default;
  // At most kMost elements, here and in push_back; more throw std::out_of_range.
  constexpr FixedVector(std::initializer_list<T> elements) {
    for (const T& element : elements) push_back(element);
  }
  constexpr void push_back(const T& element) {
    elements_.at(size_) = element;
    ++size_;
  }

  static constexpr std::size_t capacity() { return kMost; }
  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T* begin() { return elements_.data(); }
  constexpr T* end() { return elements_.data() + size_; }
  constexpr const T* begin() const { return elements_.data(); }
  constexpr const T* end() const { return elements_.data() + size_; }
  // `index` must be below size().
  constexpr T& operator[](std::size_t index) { return elements_[index]; }
  constexpr const T& operator[](std::size_t index) const { return elements_[index]; }
  constexpr const T& front() const { return elements_.front(); }

  friend bool operator==(const FixedVector& a, const FixedVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<T, kMost> elements_ = {};
  std::size_t size_ = 0;
};

// Memory for as long as a function runs. Threads keep what their functions had, so that the same
// work over and over allocates nothing.

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
