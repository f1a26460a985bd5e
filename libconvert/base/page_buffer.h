#ifndef PREPACK_BASE_PAGE_BUFFER_H_
#define PREPACK_BASE_PAGE_BUFFER_H_

// Memory that files are read into and written from.
//
// It begins at a page. Where a copy's target lies a few bytes further into its page than its
// source, some CPUs (Zen 3) copy four times slower; data in files mostly begins at a page or a
// cache line, and what malloc gives for large blocks begins 16 bytes behind one. And it is not
// cleared: what is about to be read or packed over need not be written first.

#include <cstddef>
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

}  // namespace prepack

#endif  // PREPACK_BASE_PAGE_BUFFER_H_
