#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>

#include "prepack/base/thread_kept.h"

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
  // As many as come in turns: the layers of a block, each with an own number of channels.
  struct Kept {
    std::array<Pointer, 8> values;
    size_t next = 0;
  };

  static Pointer Share(const T& value) {
    Kept& kept = KeptByThread<Kept, SharedValue>();
    const auto same = std::ranges::find_if(
        kept.values, [&](const Pointer& other) { return other != nullptr && *other == value; });
    if (same != kept.values.end()) return *same;
    Pointer& place = kept.values[kept.next++ % kept.values.size()];
    place = std::make_shared<const T>(value);
    return place;
  }

  Pointer value_;
};

}  // namespace prepack
