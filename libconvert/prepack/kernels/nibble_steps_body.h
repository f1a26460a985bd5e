#pragma once

// The bodies of nibble_steps.h. Both lanes of a register hold a pair of rows: those of lane 0 are
// rows 0 and 1, or 2 and 3, those of lane 1 four rows further. This leaves the sums of rows, 64
// bits each, where EvenWords makes all eight of them, in order, of two registers.

namespace prepack::PREPACK_LEVEL {

namespace {

constexpr size_t kHalfStep = kNibbleStepBytes / 2;
constexpr int32_t kZeroSum = 8 * kNibbleStepCols / 2;  // what sixteen codes of zero sum up to

// Calls visit(first byte in the rows, steps, group) for each step, in order.
template <typename Byte, typename Visit>
[[gnu::always_inline]] inline void ForSteps(const StepGroups& shape, Byte* steps,
                                            const Visit& visit) {
  size_t at = 0;
  for (size_t group = 0; group < shape.groups; ++group) {
    for (size_t i = 0; i < shape.steps; ++i, at += kNibbleStepRowBytes) {
      visit(at, steps + group * shape.stride + i * kNibbleStepBytes, group);
    }
  }
}

}  // namespace

#ifdef PREPACK_SCALAR

namespace {

constexpr uint64_t kLowNibbles = 0x0F0F0F0F0F0F0F0F;
constexpr uint64_t kSignBits = 0x8888888888888888;

// Bytes 0, 2, 4, 6 of the result are the lower four of x.
constexpr uint64_t SpreadBytes(uint64_t x) {
  x &= 0xFFFFFFFF;
  x = (x | x << 16) & 0x0000FFFF0000FFFF;
  return (x | x << 8) & 0x00FF00FF00FF00FF;
}
// The inverse.
constexpr uint64_t GatherBytes(uint64_t x) {
  x &= 0x00FF00FF00FF00FF;
  x = (x | x >> 8) & 0x0000FFFF0000FFFF;
  return (x | x >> 16) & 0xFFFFFFFF;
}

constexpr int32_t SumOfNibbles(uint64_t x) {
  const uint64_t bytes = (x & kLowNibbles) + (x >> 4 & kLowNibbles);
  return static_cast<int32_t>(bytes * 0x0101010101010101 >> 56);
}

// 32 columns of a row as it stores them: 0 to 15, and the others. Or in a step: those of each half.
struct StepRow {
  uint64_t first;
  uint64_t second;
};

StepRow LoadStepRow(const uint8_t* first, const uint8_t* second) {
  StepRow row;
  std::memcpy(&row.first, first, sizeof row.first);
  std::memcpy(&row.second, second, sizeof row.second);
  return row;
}

void StoreStepRow(const StepRow& row, uint8_t* first, uint8_t* second) {
  std::memcpy(first, &row.first, sizeof row.first);
  std::memcpy(second, &row.second, sizeof row.second);
}

// Stores what a row becomes in a step, and returns the sums of the codes of both halves.
std::array<int32_t, 2> PackStepRow(const uint8_t* row, uint8_t* to) {
  const StepRow codes = LoadStepRow(row, row + sizeof(uint64_t));
  const uint64_t even = (codes.first & kLowNibbles) | (codes.second & kLowNibbles) << 4;
  const uint64_t odd = (codes.first >> 4 & kLowNibbles) | (codes.second & ~kLowNibbles);
  const StepRow packed = {.first = SpreadBytes(even) | SpreadBytes(odd) << 8,
                          .second = SpreadBytes(even >> 32) | SpreadBytes(odd >> 32) << 8};
  StoreStepRow({.first = packed.first ^ kSignBits, .second = packed.second ^ kSignBits}, to,
               to + kHalfStep);
  return {SumOfNibbles(packed.first) - kZeroSum, SumOfNibbles(packed.second) - kZeroSum};
}

void UnpackStepRow(const uint8_t* from, uint8_t* row) {
  const StepRow packed = LoadStepRow(from, from + kHalfStep);
  const uint64_t first = packed.first ^ kSignBits;
  const uint64_t second = packed.second ^ kSignBits;
  const uint64_t even = GatherBytes(first) | GatherBytes(second) << 32;
  const uint64_t odd = GatherBytes(first >> 8) | GatherBytes(second >> 8) << 32;
  StoreStepRow({.first = (even & kLowNibbles) | (odd & kLowNibbles) << 4,
                .second = (even >> 4 & kLowNibbles) | (odd & ~kLowNibbles)},
               row, row + sizeof(uint64_t));
}

}  // namespace

void RowsToSteps(const uint8_t* const* rows, const StepGroups& shape, uint8_t* steps,
                 int32_t* sums) {
  ForSteps(shape, steps, [&](size_t at, uint8_t* step, size_t /*group*/) {
    for (size_t n = 0; n < kNibbleStepRows; ++n) {
      const auto halves = PackStepRow(rows[n] + at, step + n * sizeof(uint64_t));
      sums[n] = static_cast<int32_t>(static_cast<uint32_t>(sums[n]) +
                                     static_cast<uint32_t>(halves[0] + halves[1]));
    }
  });
}

void RowsToScaledSteps(const uint8_t* const* rows, const StepGroups& shape, const float* scales,
                       uint8_t* steps, float* sums) {
  ForSteps(shape, steps, [&](size_t at, uint8_t* step, size_t group) {
    for (size_t n = 0; n < kNibbleStepRows; ++n) {
      for (const int32_t half : PackStepRow(rows[n] + at, step + n * sizeof(uint64_t))) {
        sums[n] += static_cast<float>(half) * scales[group * kNibbleStepRows + n];
      }
    }
  });
}

void StepsToRows(const uint8_t* steps, const StepGroups& shape, uint8_t* const* rows) {
  ForSteps(shape, steps, [&](size_t at, const uint8_t* step, size_t /*group*/) {
    for (size_t n = 0; n < kNibbleStepRows; ++n) {
      UnpackStepRow(step + n * sizeof(uint64_t), rows[n] + at);
    }
  });
}

#else

namespace {

constexpr size_t kLaneRows = 4;                       // between the rows of the lanes
constexpr size_t kPairOfRows = 2 * sizeof(uint64_t);  // bytes of a half step
constexpr size_t kLanesApart = kLaneRows * sizeof(uint64_t);

// The codes of each two columns of a byte, added up.
[[gnu::always_inline]] inline Vector AddHalves(Vector codes) {
  const Vector low_halves = Bytes(0x0F);
  return Add8(And(codes, low_halves), And(ShiftRight<4>(codes), low_halves));
}

// Packs a pair of rows for each lane. Returns sums of codes in 32 bits: of the first row in the
// first half step, of the second one, and of both in the second half step.
[[gnu::always_inline]] inline Vector PackPair(const uint8_t* const* rows, size_t at, uint8_t* to) {
  const Vector a = LoadTwoLanes(rows[0] + at, rows[kLaneRows] + at);
  const Vector b = LoadTwoLanes(rows[1] + at, rows[kLaneRows + 1] + at);
  Vector first = UnpackLow<4>(a, b);  // four bytes of each row, and then the next four
  Vector second = UnpackHigh<4>(a, b);
  const Vector sums = AddFours(AddTwos(Add8(AddHalves(first), AddHalves(second))));
  ZipNibbles(first, second);  // columns k and k + 16
  const Vector signs = Bytes(0x88);
  StoreTwoLanes(to, to + kLanesApart, Xor(first, signs));
  StoreTwoLanes(to + kHalfStep, to + kHalfStep + kLanesApart, Xor(second, signs));
  return sums;
}

[[gnu::always_inline]] inline void UnpackPair(const uint8_t* from, size_t at,
                                              uint8_t* const* rows) {
  const Vector signs = Bytes(0x88);
  Vector low = Xor(LoadTwoLanes(from, from + kLanesApart), signs);
  Vector high = Xor(LoadTwoLanes(from + kHalfStep, from + kHalfStep + kLanesApart), signs);
  UnzipNibbles(low, high);
  StoreTwoLanes(rows[0] + at, rows[kLaneRows] + at, EvenWords(low, high));
  StoreTwoLanes(rows[1] + at, rows[kLaneRows + 1] + at, OddWords(low, high));
}

// The sums of all rows in a step: the lower lanes have those of rows 0 to 3.
struct StepSums {
  Vector first;  // half step
  Vector second;
};

[[gnu::always_inline]] inline StepSums PackStep(const uint8_t* const* rows, size_t at,
                                                uint8_t* to) {
  const Vector a = PackPair(rows, at, to);
  const Vector b = PackPair(rows + 2, at, to + kPairOfRows);
  return {UnpackLow<8>(a, b), UnpackHigh<8>(a, b)};
}

// Σ (code − 8) of a half step, times the scale.
[[gnu::always_inline]] inline Floats ScaledSums(Vector sums, Floats scales) {
  return MultiplyFloats(ToFloats(Sub32(sums, Numbers32(kZeroSum))), scales);
}

}  // namespace

void RowsToSteps(const uint8_t* const* rows, const StepGroups& shape, uint8_t* steps,
                 int32_t* sums) {
  Vector total = Load(sums);
  ForSteps(
      shape,
      steps, [&](size_t at, uint8_t * step, size_t /*group*/) __attribute__((always_inline)) {
        const StepSums added = PackStep(rows, at, step);
        total = Add32(total, Add32(added.first, added.second));
      });
  const auto zeros = static_cast<uint32_t>(8 * kNibbleStepCols * shape.groups * shape.steps);
  Store(sums, Sub32(total, Numbers32(zeros)));
}

void RowsToScaledSteps(const uint8_t* const* rows, const StepGroups& shape, const float* scales,
                       uint8_t* steps, float* sums) {
  Floats total = LoadFloats(sums);
  ForSteps(
      shape, steps, [&](size_t at, uint8_t * step, size_t group) __attribute__((always_inline)) {
        const Floats scale = LoadFloats(scales + group * kNibbleStepRows);
        const StepSums added = PackStep(rows, at, step);
        total = AddFloats(total, ScaledSums(added.first, scale));
        total = AddFloats(total, ScaledSums(added.second, scale));
      });
  StoreFloats(sums, total);
}

void StepsToRows(const uint8_t* steps, const StepGroups& shape, uint8_t* const* rows) {
  ForSteps(
      shape,
      steps, [&](size_t at, const uint8_t* step, size_t /*group*/) __attribute__((always_inline)) {
        UnpackPair(step, at, rows);
        UnpackPair(step + kPairOfRows, at, rows + 2);
      });
}

#endif

}  // namespace prepack::PREPACK_LEVEL
