#pragma once

// The bodies of row_sums.h: x86's instruction for sums of absolute differences (from zero) takes
// unsigned bytes, so signed ones get 128 added, which is taken off in the end. Four rows share the
// work of adding up what is left in the registers.

namespace prepack::PREPACK_LEVEL {

#ifdef PREPACK_SCALAR

void SumRows(const int8_t* rows, size_t row_stride, size_t row_count, size_t cols, int32_t* sums) {
  for (size_t r = 0; r < row_count; ++r) {
    const int8_t* row = rows + r * row_stride;
    int32_t sum = 0;
    for (size_t k = 0; k < cols; ++k) sum += row[k];
    sums[r] += sum;
  }
}

#else

namespace {

constexpr size_t kSumRows = 4;  // at once

// What a vector of zeros counts for.
constexpr size_t kVectorBias = 128 * kVectorBytes;

// The sums of each eight bytes.
[[gnu::always_inline]] inline Vector SumEights(Vector bytes) {
  return AddEights(Xor(bytes, Bytes(-128)));
}

// Sums of 64 bits that add up to that of the row.
[[gnu::always_inline]] inline Vector SumRow(const uint8_t* row, size_t bytes) {
  Vector even = Bytes(0);
  Vector odd = Bytes(0);
  size_t i = 0;
  for (; i + 2 * kVectorBytes <= bytes; i += 2 * kVectorBytes) {
    even = Add64(even, SumEights(Load(row + i)));
    odd = Add64(odd, SumEights(Load(row + i + kVectorBytes)));
  }
  Vector sum = Add64(even, odd);
  if (i + kVectorBytes <= bytes) {
    sum = Add64(sum, SumEights(Load(row + i)));
    i += kVectorBytes;
  }
  if (i == bytes) return sum;
  uint8_t rest[kVectorBytes] = {};
  std::memcpy(rest, row + i, bytes - i);
  return Add64(sum, SumEights(Load(rest)));
}

// The total of each of four rows; no more than 32 bits of them are asked for.
[[gnu::always_inline]] inline Lane Totals(const Vector (&row)[kSumRows]) {
  const Vector a = Or(row[0], ShiftLeft64<32>(row[1]));
  const Vector b = Or(row[2], ShiftLeft64<32>(row[3]));
  return SumLanes(Add32(UnpackLow<8>(a, b), UnpackHigh<8>(a, b)));
}

}  // namespace

void SumRows(const int8_t* rows, size_t row_stride, size_t row_count, size_t cols, int32_t* sums) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(rows);
  const size_t vectors = (cols + kVectorBytes - 1) / kVectorBytes;
  const auto bias = static_cast<uint32_t>(vectors * kVectorBias);
  for (size_t r = 0; r < row_count; r += kSumRows) {
    const size_t count = row_count - r < kSumRows ? row_count - r : kSumRows;
    Vector row[kSumRows];
    for (size_t i = 0; i < kSumRows; ++i) {  // of four always, the last row again for none
      row[i] = SumRow(bytes + (r + (i < count ? i : count - 1)) * row_stride, cols);
    }
    uint32_t totals[kSumRows];
    StoreLane(totals, Totals(row));
    for (size_t i = 0; i < count; ++i) sums[r + i] += static_cast<int32_t>(totals[i] - bias);
  }
}

#endif

}  // namespace prepack::PREPACK_LEVEL
