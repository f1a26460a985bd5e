#pragma once

// Quantized rows as superblocks of ggml, which have 256 weights: the inverse of blocks.h, as in
// pack_blocks.h. Nothing is rounded: rows whose scales are not whole multiples of one f16 in every
// superblock are not packed. Mirrors ggml of llama.cpp b11434: ggml-common.h, ggml-quants.c.
//
// Codes of a superblock lie in rows of 32, one above the other; the low bits of the first row are
// the low bits of the bytes. Sub-scales s and minima m are whole numbers, d and e are f16.
//
//     Q2_K   16 bytes s | m << 4; 2 × 32 bytes, each with 2 bits of 4 rows; d, e: w = d·s·q − e·m
//     Q3_K   32 bytes with the third bits of 8 rows; as Q2_K; 12 bytes of s + 32; d: w = d·s·q
//     Q4_K   d, e; 12 bytes of s and m; 4 × 32 bytes, each with 4 bits of 2 rows: w = d·s·q − e·m
//     Q5_K   d, e; 12 bytes of s and m; 32 bytes with the fifth bits of 8 rows; as Q4_K
//     Q6_K   2 × 64 bytes, each with 4 bits of 2 × 64 weights; 2 × 32 bytes, each with the high 2
//            bits of 4 rows; 16 signed bytes s; d: w = d·s·(q − 32)

#include <cstddef>
#include <cstdint>
#include <optional>

#include "prepack/convert/gguf/integers.h"
#include "prepack/convert/gguf/pack_blocks.h"
#include "prepack/model/scheme.h"

namespace prepack::gguf {

// The first superblock of a row whose scales, or minima, are no whole multiples of one f16; nothing
// if the range holds all of them. The codes of the row are not looked at.
std::optional<uint64_t> FirstNotHeld(const IntegerRange& range, const Scheme& scheme, uint64_t k,
                                     const CodeRow& row);

// Packs a row of K codes. false: FirstNotHeld has one.
bool PackSuperblocks(const IntegerRange& range, const Scheme& scheme, uint64_t k,
                     const CodeRow& row, std::byte* out);

}  // namespace prepack::gguf
