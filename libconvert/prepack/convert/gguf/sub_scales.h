#pragma once

// The scales of a superblock of ggml: one f16 times whole numbers of a few bits. Scales that are
// such products are found to be, and nothing is ever approximated.

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace prepack::gguf {

inline constexpr uint32_t kSuperBlock = 256;
inline constexpr uint32_t kMostSubScales = 16;

struct SubScales {
  uint16_t super = 0;  // f16
  std::array<int, kMostSubScales> factors = {};
};

// An f16 and whole numbers of [least, most], which includes 0, whose products are the scales
// exactly; nothing if there are none. The smallest numbers that do. `scales` are finite, at most
// kMostSubScales, of at most 40 significant bits.
std::optional<SubScales> FindSubScales(std::span<const double> scales, int least, int most);

}  // namespace prepack::gguf
