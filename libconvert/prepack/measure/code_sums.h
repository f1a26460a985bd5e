#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "prepack/measure/byte_counts.h"
#include "prepack/measure/code_windows.h"

namespace prepack {

// The values of floats: those of integers follow from PieceSums.
struct ValueSums {
  double sum = 0;
  double squares = 0;
};

// Counts the codes of rows, and sums them up piece by piece.
class RowCodes {
 public:
  explicit RowCodes(CodeRange::Kind kind, unsigned flip) : kind_(kind), flip_(flip) {}

  // The next row, of `k` codes: counts them. It must stay until the one after it.
  void Read(std::span<const std::byte> row, uint64_t k);

  // Codes [first, end) of the row, at most kPieceCodes. Values of floats are added to `values`.
  PieceSums Sum(uint64_t first, uint64_t end, ValueSums& values) const;

  // Can the nibbles of groups of `size` be summed up at once?
  static bool HasGroups(CodeRange::Kind kind, uint64_t size);
  // Then so are those of the row, from the first on: fills `sums` and `squares`, of the values, and
  // returns what windows count.
  NibbleGroups SumGroups(uint64_t size, std::span<double> sums, std::span<double> squares);

  // Adds how often each code was there, in all rows.
  void CountInto(ByteCounts<uint64_t>& histogram) const;

 private:
  void ReadNibbles(uint64_t k);
  void CountBytes();

  CodeRange::Kind kind_;
  unsigned flip_;
  std::span<const std::byte> row_;
  // Nibbles: sums of eight bytes each, as the kernel has them. FP4 has two kinds of them.
  std::vector<uint64_t> sums_;
  std::vector<uint64_t> signs_;
  // The same of groups.
  std::vector<uint64_t> group_sums_;
  std::vector<uint64_t> group_signs_;
  // Bytes are counted in turns, so that equal neighbours do not wait for each other.
  std::array<std::array<uint32_t, 256>, 4> turns_{};
  std::array<uint64_t, 256> counts_{};
};

}  // namespace prepack
