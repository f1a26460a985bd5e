#pragma once

// oneDNN's blocked memory descriptor of a [K, N] weight matrix, as plain fields: comparable across
// versions of the library, which its opaque struct is not. Mirrors dnnl_memory_desc of oneDNN 3.13
// (src/common/memory_desc.hpp).
//
// The matrix is cut into blocks. Inside a block the inner blocks nest, the last one innermost;
// outside, every dimension has a stride. Element (k, n) is at
//
//     strides[0] · (k / block(K)) + strides[1] · (n / block(N)) + place inside the block
//
// Behind the elements, first the sums for s8 activations, then those for their zero points:
//
//     i32 [padded N]  −128 · Σ_k w(k, n)     when s8s8_compensation
//     i32 [padded N]       − Σ_k w(k, n)     when zero_point_compensation

#include <array>
#include <cstdint>
#include <string>

#include "prepack/base/memory.h"
#include "prepack/base/status.h"

namespace prepack {

struct InnerBlock {
  uint32_t dim = 0;  // 0: K, 1: N
  uint64_t size = 1;

  friend bool operator==(const InnerBlock&, const InnerBlock&) = default;
};

// More than any kernel asks for.
using InnerBlocks = FixedVector<InnerBlock, 8>;

struct BlockedDesc {
  std::array<uint64_t, 2> dims = {};         // K, N
  std::array<uint64_t, 2> padded_dims = {};  // multiples of the blocks
  std::array<uint64_t, 2> strides = {};      // of the blocks, in elements
  InnerBlocks inner;                         // outermost first
  bool s8s8_compensation = false;
  bool zero_point_compensation = false;

  friend bool operator==(const BlockedDesc&, const BlockedDesc&) = default;

  // Product of the inner blocks along a dimension: 1 where there are none.
  uint64_t Block(uint32_t dim) const;
  // Elements of one block.
  uint64_t BlockElements() const;
  // Place of element (k, n), both inside the padded matrix, in elements.
  uint64_t Element(uint64_t k, uint64_t n) const;
  // All elements, with padding, in elements.
  uint64_t Elements() const { return padded_dims[0] * padded_dims[1]; }
  // Are the blocks along N the outer ones? Where one block is all of a dimension, both strides may
  // be the same: then the dimension with the other blocks is outside. A single block has both.
  bool NIsOutside() const;
  // oneDNN's name, as `BA16a64b4a`: outer dimensions by falling stride, a capital where blocked.
  std::string Name() const;
};

// Is it a descriptor that covers dims [k, n] without overlap or holes? kMalformed with the field.
// Everything that comes from a file or a library is checked before use.
Status CheckBlockedDesc(const BlockedDesc& desc, uint64_t k, uint64_t n);

// Row-major [K, N], `ab`.
BlockedDesc PlainDesc(uint64_t k, uint64_t n);
// `BA16a64b4a`: N and K padded to 64. What oneDNN's int8 matmul asks for on AVX-512 VNNI.
BlockedDesc Ba16a64b4aDesc(uint64_t k, uint64_t n);

// Rows of the activations that the primitive is asked with, as vLLM asks it. Weights are packed
// once, for any number of rows.
inline constexpr uint64_t kOneDnnProbeRows = 128;

// Which oneDNN asked for a form, for the manifest: on another machine it may ask for another one.
struct OneDnnOrigin {
  std::string version;         // "3.13.2"
  std::string hash;            // of the library's source, as dnnl_version() gives it
  std::string isa;             // dnnl_get_effective_cpu_isa(), "0x7"
  std::string implementation;  // "brg_matmul:avx512_core_vnni"
  uint64_t probe_m = kOneDnnProbeRows;

  friend bool operator==(const OneDnnOrigin&, const OneDnnOrigin&) = default;

  // A portable implementation that is right but far slower than the others.
  bool IsReference() const { return implementation.starts_with("ref"); }
};

}  // namespace prepack
