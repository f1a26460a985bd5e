#pragma once

// Small unsigned numbers packed into 32-bit words, as the second decoders take them out: bit by
// bit, or in bit planes. Planes are how GPTQModel stores widths that do not divide 32: 32 numbers
// take `bits` words, their lowest bits first, in planes as wide as the powers of two that `bits` is
// made of, the widest first (5 = 4 + 1, 7 = 4 + 2 + 1).

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "prepack/verify/second/decoder.h"

namespace prepack {

struct SecondFields {
  uint32_t bits = 4;
  bool whole_words = false;  // a field does not cross words: ⌊32 / bits⌋ of them in each
  bool planes = false;       // 32 fields lie in planes

  // The word that holds the first bit of field `index`, and that of its last bit.
  uint64_t FirstWord(uint64_t index) const {
    if (planes) return index / 32 * bits;
    return whole_words ? index / PerWord() : index * bits / 32;
  }
  uint64_t LastWord(uint64_t index) const {
    if (planes) return FirstWord(index) + bits - 1;
    return whole_words ? index / PerWord() : ((index + 1) * bits - 1) / 32;
  }
  // Words of `count` fields.
  uint64_t Words(uint64_t count) const { return count == 0 ? 0 : LastWord(count - 1) + 1; }

  // Field `index` of words that lie `stride` apart, the first of which is word `skipped`.
  uint32_t At(std::span<const uint32_t> words, uint64_t index, uint64_t stride = 1,
              uint64_t skipped = 0) const;

  // Fields [begin, begin + count), a byte each, of words that lie side by side, of which the first
  // holds field `begin`, which is a multiple of 32 or the first of its word. The result lies in
  // `codes`. kFieldSlack words behind the last one are read, whatever they hold.
  std::span<const uint8_t> Split(const uint32_t* words, uint64_t begin, uint64_t count,
                                 std::vector<uint8_t>& codes) const;

 private:
  uint64_t PerWord() const { return 32 / bits; }
  uint32_t InPlanes(std::span<const uint32_t> words, uint64_t index, uint64_t stride,
                    uint64_t skipped) const;
};

inline constexpr uint64_t kFieldSlack = 2;

inline constexpr uint64_t kLineWords = 16;  // of a cache line

// Words [lines, columns] at any address, of which lines lie `stride` words apart, to [columns,
// lines], of which columns lie `turned_stride` apart: so those of an output channel lie side by
// side.
void TurnSecondWords(const std::byte* words, uint64_t lines, uint64_t columns, uint64_t stride,
                     uint64_t turned_stride, uint32_t* turned);

// Turns the codes of rows into steps: code − zero point.
class SecondSteps {
 public:
  // Codes have so many bits. `zeros` [rows, groups], groups being those of out.group_of, or one for
  // all. Makes room in `out`, of bytes if they are taken and all steps fit.
  SecondSteps(uint32_t bits, std::span<const int16_t> zeros, uint64_t rows, bool takes_small,
              DecodedRows& out);

  // Of fields that are signed bytes: codes are 128 more.
  void SetSigned() { more_ = 128; }

  // The codes of a row, a byte each.
  void Put(uint64_t row, const uint8_t* codes);
  // Fields of 4 or 8 bits, as they lie in memory, the lowest of a byte first.
  void PutFields(uint64_t row, const uint8_t* bytes);

 private:
  // Consecutive input channels with one group.
  struct Run {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t group = 0;
  };

  // Calls work(begin, end, zero) for the input channels of the row.
  template <typename Work>
  void ForRuns(uint64_t row, const Work& work) const;

  uint32_t bits_;
  std::span<const int16_t> zeros_;
  uint64_t groups_;  // 0: one zero point for all
  uint64_t inputs_;
  int32_t more_ = 0;  // codes are so much more than fields
  bool small_;
  std::vector<Run> runs_;
  bool has_even_runs_ = true;
  std::vector<uint8_t> codes_;
  DecodedRows& out_;
};

// Steps that bytes [rows, K] stand for, by the list of all. None of them may be NaN if codes are
// taken.
void PutSecondCodes(std::span<const uint8_t> codes, const std::array<float, kSecondCodes>& values,
                    bool takes_codes, DecodedRows& out);
// The same of bytes of FP8, any of them.
void PutSecondFp8(std::span<const uint8_t> codes, bool takes_codes, DecodedRows& out);

}  // namespace prepack
