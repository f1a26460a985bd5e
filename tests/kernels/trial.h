#pragma once

// A trial: how a kernel is called with a shape.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "prepack/kernels/kernels.h"

namespace prepack {

// Any numbers make a shape: trials take them modulo what they allow.
struct TrialShape {
  size_t rows = 32;
  size_t cols = 1024;
  size_t in_gap = 0;  // bytes between the rows of what is read, as far as these may lie apart
  size_t out_gap = 0;
  size_t option = 0;  // what else there is to choose
};

struct Trial {
  size_t in_bytes = 0;
  size_t out_bytes = 0;
  // `kernels`: those of one instruction set.
  std::function<void(const KernelTable& kernels, const uint8_t* in, uint8_t* out)> run;
  // Makes something that the kernel takes of any bytes, where it does not take all.
  std::function<void(uint8_t* in)> prepare = [](uint8_t*) {};
};

// From the first of `rows` runs of `bytes` to the end of the last one.
constexpr size_t StridedSize(size_t rows, size_t bytes, size_t stride) {
  return rows == 0 || bytes == 0 ? 0 : (rows - 1) * stride + bytes;
}

namespace trials {

template <typename T>
T* As(uint8_t* bytes) {
  return reinterpret_cast<T*>(bytes);
}
template <typename T>
const T* As(const uint8_t* bytes) {
  return reinterpret_cast<const T*>(bytes);
}

}  // namespace trials
}  // namespace prepack
