#ifndef ONEDNN_CONSUMER_KERNEL_INPUT_H_
#define ONEDNN_CONSUMER_KERNEL_INPUT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "operands.h"
#include "packed_folder.h"

enum class InputType : uint8_t { kS8, kBF16, kF32 };

// Inputs [M, K] as a primitive takes them.
struct KernelInput {
  std::vector<int8_t> s8;  // one of these three is filled
  std::vector<uint16_t> bf16;
  std::vector<float> f32;
  std::vector<float> scales;         // [M]; of s8
  std::vector<int32_t> zero_points;  // [M]; of s8
  std::vector<float> values;         // [M, K]: what the numbers above stand for

  void* data();
};

// x with its columns in the order that the module's weights are in.
std::vector<float> Ordered(std::span<const float> x, uint64_t k, const Operands& operands);

// `x` is already in that order.
KernelInput MakeKernelInput(const Module& module, const Operands& operands, InputType type,
                            std::span<const float> x);

#endif  // ONEDNN_CONSUMER_KERNEL_INPUT_H_
