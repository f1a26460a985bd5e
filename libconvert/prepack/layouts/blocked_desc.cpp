#include "prepack/layouts/blocked_desc.h"

#include <fmt/format.h>

#include "prepack/base/checked.h"

namespace prepack {
namespace {

constexpr uint32_t kDims = 2;
constexpr uint64_t kMaxBlock = 4096;  // far above any kernel's

Status Bad(std::string_view field, std::string_view found, std::string_view expected) {
  return Malformed("memory descriptor", fmt::format("field \"{}\" is not usable", field))
      .Found(found)
      .Expected(expected);
}

// The blocks must tile the buffer: one dimension's stride is a block, the other's a row of them.
Status CheckStrides(const BlockedDesc& desc) {
  const uint64_t block = desc.BlockElements();
  const std::array<uint64_t, 2> counts = {desc.padded_dims[0] / desc.Block(0),
                                          desc.padded_dims[1] / desc.Block(1)};
  for (uint32_t inner = 0; inner < kDims; ++inner) {
    const uint32_t outer = 1 - inner;
    if (desc.strides[inner] == block && desc.strides[outer] == block * counts[inner]) return {};
  }
  return Bad("strides", fmt::format("[{}, {}]", desc.strides[0], desc.strides[1]),
             fmt::format("one of {}, the other covering all blocks beside it", block));
}

}  // namespace

uint64_t BlockedDesc::Block(uint32_t dim) const {
  uint64_t block = 1;
  for (const InnerBlock& inner_block : inner) {
    if (inner_block.dim == dim) block *= inner_block.size;
  }
  return block;
}

uint64_t BlockedDesc::BlockElements() const {
  return Block(0) * Block(1);
}

uint64_t BlockedDesc::Element(uint64_t k, uint64_t n) const {
  std::array<uint64_t, 2> rest = {k % Block(0), n % Block(1)};
  uint64_t place = strides[0] * (k / Block(0)) + strides[1] * (n / Block(1));
  uint64_t stride = 1;
  for (size_t i = inner.size(); i-- > 0;) {
    const InnerBlock& block = inner[i];
    place += rest[block.dim] % block.size * stride;
    rest[block.dim] /= block.size;
    stride *= block.size;
  }
  return place;
}

bool BlockedDesc::NIsOutside() const {
  if (strides[0] != strides[1]) return strides[1] > strides[0];
  if (padded_dims[0] != Block(0)) return false;
  return padded_dims[1] != Block(1) || !inner.empty();
}

std::string BlockedDesc::Name() const {
  const auto letter = [this](uint32_t dim) {
    return static_cast<char>((Block(dim) > 1 ? 'A' : 'a') + static_cast<char>(dim));
  };
  const uint32_t first = NIsOutside() ? 1 : 0;
  std::string name{letter(first), letter(1 - first)};
  for (const InnerBlock& block : inner) {
    name += fmt::format("{}{}", block.size, block.dim == 0 ? 'a' : 'b');
  }
  return name;
}

Status CheckBlockedDesc(const BlockedDesc& desc, uint64_t k, uint64_t n) {
  const std::array<uint64_t, 2> wanted = {k, n};
  if (desc.dims != wanted) {
    return Bad("dims", fmt::format("[{}, {}]", desc.dims[0], desc.dims[1]),
               fmt::format("[{}, {}]", k, n));
  }
  std::array<uint64_t, kDims> blocks = {1, 1};
  for (const InnerBlock& block : desc.inner) {
    const bool sound = block.dim < kDims && block.size != 0 && block.size <= kMaxBlock;
    if (sound) blocks[block.dim] *= block.size;
    // Checked one by one, so that the product cannot overflow.
    if (!sound || blocks[block.dim] > kMaxBlock) {
      return Bad("inner_blocks", fmt::format("{} along dimension {}", block.size, block.dim),
                 fmt::format("1 to {} in all along 0 or 1", kMaxBlock));
    }
  }
  for (uint32_t dim = 0; dim < kDims; ++dim) {
    const uint64_t block = desc.Block(dim);
    if (desc.padded_dims[dim] != CeilDiv(desc.dims[dim], block) * block) {
      return Bad("padded_dims", fmt::format("{}", desc.padded_dims[dim]),
                 fmt::format("{} rounded up to its block of {}", desc.dims[dim], block));
    }
  }
  return CheckStrides(desc);
}

BlockedDesc PlainDesc(uint64_t k, uint64_t n) {
  return {.dims = {k, n}, .padded_dims = {k, n}, .strides = {n, 1}, .inner = {}};
}

BlockedDesc Ba16a64b4aDesc(uint64_t k, uint64_t n) {
  constexpr uint64_t kBlock = 64;
  const std::array<uint64_t, 2> padded = {CeilDiv(k, kBlock) * kBlock, CeilDiv(n, kBlock) * kBlock};
  return {.dims = {k, n},
          .padded_dims = padded,
          .strides = {kBlock * kBlock, padded[0] * kBlock},
          .inner = {{.dim = 0, .size = 16}, {.dim = 1, .size = 64}, {.dim = 0, .size = 4}}};
}

}  // namespace prepack
