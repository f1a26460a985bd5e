#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "prepack/measure/byte_counts.h"
#include "prepack/model/scheme.h"

namespace prepack {

// What code_windows.h counts in a module.
struct WindowCounts {
  uint64_t windows = 0;          // of rows
  uint64_t shifted_windows = 0;  // whose mean lies where none of weights does
  uint64_t noisy_windows = 0;    // whose codes are spread like noise
  uint64_t column_windows = 0;
  uint64_t shifted_columns = 0;   // windows whose mean lies where none of weights does
  uint64_t noisy_columns = 0;     // windows
  uint64_t constant_columns = 0;  // input channels with one code, not that of zero, in all rows
  uint64_t repeated_columns = 0;  // windows that are there twice
  // Groups whose weights are all zero, by the exponent of their scale in f32.
  ByteCounts<uint32_t> empty_scale_exponents;
  uint64_t codes_hash = 0;  // of the codes of all rows
  // Hashes of some of the rows, chosen by their value, so that equal rows are chosen together.
  std::vector<uint64_t> row_hashes;

  void Merge(const WindowCounts& other);
  // How many of `row_hashes` are there twice.
  uint64_t RepeatedRows() const;
};

// Do the codes look like those of weights, everywhere in a module? Sound codes are bell curves, so
// a page that was never written, was overwritten by text or by noise, or holds a copy of another
// page stands out against what any window of a sound module looks like. Two kinds of windows are
// needed, because a page of a file holds the input channels of few output channels in some formats
// (rows), and a few input channels of many output channels in others (columns):
//
//            K                                         K
//      ┌───────────────┐                         ┌───────────────┐
//    N │▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒│ a row window:         N │  ▒            │ a column window: 8 channels of
//      │▒▒▒▒           │ 4096 codes              │  ▒            │ the output channels that were
//      └───────────────┘                         └───────────────┘ read together
//
// Besides: rows and columns that are there twice, and what all rows hash to, by which a copy of the
// module is found.

struct RowNumbers;

inline constexpr uint64_t kWindowCodes = 4096;
inline constexpr uint64_t kWindowColumns = 8;

// Where a window's mean may lie, in halves of the range of codes: that of sound ones stays below
// 0.1, a page of zeros has 1, text in 4 bits 0.3.
inline constexpr double kWindowMean = 0.2;
// The same where zero points are not in the middle, and for two nibbles of a byte against each
// other.
inline constexpr double kWindowMeanAsymmetric = 0.5;
// Variance of a window, in squares of half the range: noise has 1/3, groups of 128 have 0.1, groups
// of 32 0.2; smaller groups come too near.
inline constexpr double kWindowVariance = 0.30;
inline constexpr uint64_t kMinVarianceGroup = 32;
// FP8: deviation of the exponents of nonzero codes, 1.6 in a bell curve of any width and 4.6 in
// noise; and share of negative codes, a half, less half of what is zero.
inline constexpr double kWindowExponents = 3.3;
inline constexpr double kWindowSigns = 0.2;
// Columns: their mean where zero points are not in the middle (0.14 in sound modules), and their
// variance, which is less certain there, because fewer codes are looked at.
inline constexpr double kColumnMeanAsymmetric = 0.25;
inline constexpr double kColumnVariance = 0.32;
// Below this many output channels a column says nothing.
inline constexpr uint64_t kMinColumnRows = 64;
// Columns are counted in one of so many blocks of output channels: a page lies over 1024 of them at
// least, and counting all would take as long as all else together.
inline constexpr uint64_t kColumnBlock = 128;
inline constexpr uint64_t kCountedBlocks = 4;

// How the bytes of a panel are numbers around `middle`.
struct CodeRange {
  // kFloats are FP8, kFloatNibbles FP4.
  enum class Kind : uint8_t { kNibbles, kBytes, kFloats, kFloatNibbles };
  Kind kind = Kind::kNibbles;
  unsigned flip = 0;    // for signed bytes: 0x80 makes them unsigned
  unsigned middle = 8;  // of the numbers
  double half = 8;      // of the range

  bool IsFloat() const { return kind == Kind::kFloats || kind == Kind::kFloatNibbles; }
};
CodeRange RangeOf(const Scheme& scheme);

// Sums over consecutive codes, as CodeRange makes them numbers; for FP8, over their exponents. FP4
// has only signs and zeros: in groups of 16 or 32, sound codes are spread nearly like noise.
struct PieceSums {
  uint64_t count = 0;
  uint64_t even = 0;      // Σ code at even places: the lower nibbles of bytes
  uint64_t odd = 0;       // Σ code at odd places
  uint64_t squares = 0;   // Σ code²
  uint64_t negative = 0;  // FP8, FP4: codes with the sign set
  uint64_t zero = 0;      // FP8, FP4: codes that are zero

  friend bool operator==(const PieceSums&, const PieceSums&) = default;

  void Add(const PieceSums& other) {
    count += other.count;
    even += other.even;
    odd += other.odd;
    squares += other.squares;
    negative += other.negative;
    zero += other.zero;
  }
};
// A group may be as long as a row: sums are made of pieces of so many codes, from even ones on.
inline constexpr uint64_t kPieceCodes = 2048;

// The sums of groups of nibbles, each as SumNibbles makes them (kernels/code_counts.h): those of
// signs for FP4.
struct NibbleGroups {
  uint64_t size = 0;  // of a group: even, and a divisor of kPieceCodes
  std::span<const uint64_t> sums;
};

// The row windows of some output channels that are added piece by piece, in their order.
class RowWindows {
 public:
  RowWindows(const Scheme& scheme, WindowCounts& counts);

  // Codes of one group, with its scale and its zero point as stored in the panel.
  void Add(const PieceSums& sums, float scale, uint8_t zero_point);
  // The same for many groups at once.
  void AddGroups(const NibbleGroups& groups, const float* scales, const uint8_t* zero_points);

 private:
  void AddEmpty(float scale);
  void Judge();

  const CodeRange range_;
  const bool symmetric_;
  const bool judges_variance_;
  const bool empties_tell_;
  WindowCounts& counts_;
  PieceSums total_;
  uint64_t zeros_ = 0;  // Σ zero point
};

// Adds output channels that start with number `n0` to what copies are found by.
void HashRows(uint64_t n0, uint64_t rows, std::span<const std::byte> codes, WindowCounts& counts);

// The column windows of a stripe, panel by panel.
class ColumnWindows {
 public:
  // For the next stripe of a module with K input channels.
  void Begin(uint64_t k);
  void Add(const Scheme& scheme, uint64_t k, uint64_t rows, const RowNumbers& numbers,
           WindowCounts& counts);
  // After the last panel of a stripe.
  void End(WindowCounts& counts) const;

 private:
  void Sum(const CodeRange& range, uint64_t k, std::span<const std::byte> rows, uint64_t count);
  void SumNibbles(unsigned middle, uint64_t k, std::span<const std::byte> rows, uint64_t count);
  void Judge(const Scheme& scheme, const CodeRange& range, uint64_t rows, const RowNumbers& numbers,
             WindowCounts& counts);

  // For one block of output channels, by input channel: Σ code, Σ (code − middle)².
  std::vector<uint32_t> sums_;
  std::vector<uint32_t> squares_;
  std::vector<uint16_t> nibbles_;  // of a block: what the kernel makes
  std::vector<uint64_t> hashes_;   // of the sums of all blocks, by eight input channels
  std::vector<uint8_t> varied_;    // by eight input channels: not all constant
  uint64_t row_ = 0;               // of the stripe, that comes next
  uint64_t counted_ = 0;           // rows
};

// Stored bytes that are there twice, whatever order of input channels the reader puts them in: a
// page that was written over another one. Codes of trained weights never repeat this many bytes.
class StoredBlocks {
 public:
  static constexpr uint64_t kBytes = 256;      // per block
  static constexpr uint64_t kMinRepeated = 8;  // blocks
  // Different bytes in a block that counts: constant rows repeat each other.
  static constexpr unsigned kMinValues = 16;

  // Bytes of the tensor from `offset` on. Blocks begin at multiples of kBytes in the tensor.
  void Add(uint64_t offset, std::span<const std::byte> bytes);
  void Merge(const StoredBlocks& other);
  // Blocks that equal one before them.
  uint64_t Repeated() const;

 private:
  std::vector<uint64_t> hashes_;
};

// Text among codes: the page of a server that could not deliver the file, a log, a listing.
// Whatever the format and its number of bits, codes use all 256 bytes, or at least such with the
// highest bit set, which text never has.

// Looked for at every so many bytes: a page has one of these places, wherever it begins.
inline constexpr uint64_t kTextStep = 2048;
// So many bytes at such a place, and in all around it.
inline constexpr uint64_t kTextProbe = 64;
inline constexpr uint64_t kMinText = 512;
// Different bytes in it. Codes that are nearly all the same may be a few letters.
inline constexpr unsigned kMinLetters = 16;

// Where most codes of 2 bits are one, most bytes are letters.
inline constexpr uint32_t kMinTextBits = 3;

struct TextRun {
  uint64_t offset = 0;  // of its first byte
  uint64_t bytes = 0;
  std::string beginning;
};

// The first text in `bytes`, if there is one.
std::optional<TextRun> FindText(std::span<const std::byte> bytes);

}  // namespace prepack
