#ifndef PREPACK_CHECK_WINDOW_COUNTS_H_
#define PREPACK_CHECK_WINDOW_COUNTS_H_

#include <array>
#include <cstdint>
#include <vector>

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
  std::array<uint32_t, 256> empty_scale_exponents{};
  uint64_t codes_hash = 0;  // of the codes of all rows
  // Hashes of some of the rows, chosen by their value, so that equal rows are chosen together.
  std::vector<uint64_t> row_hashes;

  void Merge(const WindowCounts& other);
  // How many of `row_hashes` are there twice.
  uint64_t RepeatedRows() const;
};

}  // namespace prepack

#endif  // PREPACK_CHECK_WINDOW_COUNTS_H_
