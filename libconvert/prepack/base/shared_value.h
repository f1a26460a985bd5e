#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>

namespace prepack {

// A value that many objects have in common, such as the scheme of the modules of a model, and that
// none of them changes: those that a thread makes one after another share it.
template <typename T>
class SharedValue {
 public:
  SharedValue() : SharedValue(T{}) {}
  // Implicit, as it stands for the value.
  SharedValue(const T& value) : value_(Share(value)) {}

  // Implicit, as above.
  operator const T&() const { return *value_; }
  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }

 private:
  using Pointer = std::shared_ptr<const T>;

  static Pointer Share(const T& value) {
    // As many as come in turns: the layers of a block, each with an own number of channels.
    constexpr size_t kKept = 8;
    thread_local std::array<Pointer, kKept> kept;
    thread_local size_t next = 0;
    const auto same = std::ranges::find_if(
        kept, [&](const Pointer& other) { return other != nullptr && *other == value; });
    if (same != kept.end()) return *same;
    Pointer& place = kept[next++ % kKept];
    place = std::make_shared<const T>(value);
    return place;
  }

  Pointer value_;
};

}  // namespace prepack
