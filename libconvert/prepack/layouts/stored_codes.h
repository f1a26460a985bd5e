#pragma once

// Integer codes and zero points as checkpoint formats pack them into 32-bit words, lowest bits
// first. Codes are unsigned there: signed bytes are stored with 128 added.
//
// A dense row is a string of bits, code i in bits [i·b, i·b + b). A word-aligned one has ⌊32/b⌋
// codes in each word and wastes the high bits. Both end in a whole word; unused bits are zero. For
// 1, 2, 4 and 8 bits they are the same.

#include <cstddef>
#include <cstdint>
#include <span>

#include "prepack/kernels/codes.h"
#include "prepack/layouts/layout.h"
#include "prepack/model/scheme.h"

namespace prepack {

struct WordForm {
  uint32_t bits = 4;
  bool word_aligned = false;

  // Codes after which a new word begins.
  uint64_t CodesPerWords() const { return word_aligned ? 32 / bits : 32; }
  uint64_t Words(uint64_t codes) const { return CodeWords(bits, word_aligned, codes); }
  // The first bit of a code.
  uint64_t BitOf(uint64_t code) const {
    return word_aligned ? code / (32 / bits) * 32 + code % (32 / bits) * bits : code * bits;
  }
};

// Stores `count` codes of a row of a panel as form.Words(count) words, and back.
void StoreCodes(const WordForm& form, CodeType type, const std::byte* codes, uint64_t count,
                std::byte* words);
void LoadCodes(const WordForm& form, CodeType type, const std::byte* words, uint64_t count,
               std::byte* codes);

// The same of zero points, which are a byte each.
void StoreZeros(const WordForm& form, const uint8_t* zero_points, uint64_t count, std::byte* words);
void LoadZeros(const WordForm& form, const std::byte* words, uint64_t count, uint8_t* zero_points);

// What is added to a zero point to make it unsigned.
constexpr uint8_t UnsignedOffset(CodeType code) {
  return code == CodeType::kS8 ? 128 : 0;
}
// The same of codes, as bits to flip.
constexpr std::byte SignMask(CodeType code) {
  return static_cast<std::byte>(UnsignedOffset(code));
}

// Zero points of a strip, [rows, G] bytes, as [G, rows] with `offset` added, and back.
void ZeroColumns(const PackRequest& request, uint64_t rows, std::span<const uint8_t> zero_points,
                 uint8_t offset, std::span<uint8_t> columns);
void ZeroRows(const PackRequest& request, uint64_t rows, std::span<const uint8_t> columns,
              uint8_t offset, std::span<uint8_t> zero_points);

}  // namespace prepack
