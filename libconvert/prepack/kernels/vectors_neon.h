#pragma once

// What vectors.h is made of with NEON. vectors_x86.h says what the functions do.

#include <arm_neon.h>

namespace prepack::PREPACK_LEVEL {
namespace {

constexpr Isa kBelow = Isa::kScalar;

// A register, which becomes one of any elements where an instruction wants them.
struct Lane {
  uint8x16_t bits;

  Lane() = default;
  template <typename Register>
  [[gnu::always_inline]] Lane(Register value) : bits(uint8x16_t(value)) {}
  template <typename Register>
  [[gnu::always_inline]] operator Register() const {
    return Register(bits);
  }
};

struct Vector {
  Lane low;
  Lane high;
};

struct Floats {
  float32x4_t low;
  float32x4_t high;
};

struct Doubles {
  float64x2_t low;
  float64x2_t high;
};

#define PREPACK_BINARY(type, name, x86, neon)               \
  [[gnu::always_inline]] inline type name(type a, type b) { \
    return {neon(a.low, b.low), neon(a.high, b.high)};      \
  }
#define PREPACK_UNARY(to, from, name, x86, neon)  \
  [[gnu::always_inline]] inline to name(from a) { \
    return {neon(a.low), neon(a.high)};           \
  }
#define PREPACK_SHIFT(name, x86, neon)                            \
  template <int kBits>                                            \
  [[gnu::always_inline]] inline Vector name(Vector numbers) {     \
    return {neon(numbers.low, kBits), neon(numbers.high, kBits)}; \
  }
#define PREPACK_REPEAT(type, name, from, element, x86, neon) \
  [[gnu::always_inline]] inline type name(from number) {     \
    const auto half = neon(static_cast<element>(number));    \
    return {half, half};                                     \
  }
#define PREPACK_OF_UNITS(name, x86, neon)                                                    \
  template <size_t kUnit>                                                                    \
  [[gnu::always_inline]] inline Vector name(Vector a, Vector b) {                            \
    if constexpr (kUnit == 1) return {neon##_u8(a.low, b.low), neon##_u8(a.high, b.high)};   \
    if constexpr (kUnit == 2) return {neon##_u16(a.low, b.low), neon##_u16(a.high, b.high)}; \
    if constexpr (kUnit == 4) return {neon##_u32(a.low, b.low), neon##_u32(a.high, b.high)}; \
    if constexpr (kUnit == 8) return {neon##_u64(a.low, b.low), neon##_u64(a.high, b.high)}; \
  }
#define PREPACK_MEMORY(type, load, store, element, x86, neon)                            \
  [[gnu::always_inline]] inline type load(const element* from) {                         \
    return {vld1q_##neon(from), vld1q_##neon(from + 16 / sizeof *from)};                 \
  }                                                                                      \
  [[gnu::always_inline]] inline void store(std::add_pointer_t<element> to, type value) { \
    vst1q_##neon(to, value.low);                                                         \
    vst1q_##neon(to + 16 / sizeof *to, value.high);                                      \
  }
#define PREPACK_BITWISE(name, x86, neon) PREPACK_BINARY(Vector, name, x86, neon)

[[gnu::always_inline]] inline Lane LoadLane(const void* from) {
  return vld1q_u8(static_cast<const uint8_t*>(from));
}

[[gnu::always_inline]] inline void StoreLane(void* to, Lane value) {
  vst1q_u8(static_cast<uint8_t*>(to), value);
}

[[gnu::always_inline]] inline Vector LoadTwoLanes(const void* low, const void* high) {
  return {LoadLane(low), LoadLane(high)};
}

[[gnu::always_inline]] inline void StoreTwoLanes(void* low, void* high, Vector value) {
  StoreLane(low, value.low);
  StoreLane(high, value.high);
}

[[gnu::always_inline]] inline Vector Load(const void* from) {
  return LoadTwoLanes(from, static_cast<const uint8_t*>(from) + sizeof(Lane));
}

[[gnu::always_inline]] inline void Store(void* to, Vector value) {
  StoreTwoLanes(to, static_cast<uint8_t*>(to) + sizeof(Lane), value);
}

template <int... kBytes>
[[gnu::always_inline]] inline Lane LaneOf() {
  return uint8x16_t{static_cast<uint8_t>(kBytes)...};
}

[[gnu::always_inline]] inline Lane JoinHalves(const void* low, const void* high) {
  return vcombine_u8(vld1_u8(static_cast<const uint8_t*>(low)),
                     vld1_u8(static_cast<const uint8_t*>(high)));
}

[[gnu::always_inline]] inline void StoreTwoWords(uint8_t* words, size_t stride, Lane value) {
  vst1_u8(words, vget_low_u8(value));
  vst1_u8(words + stride, vget_high_u8(value));
}

[[gnu::always_inline]] inline Vector Repeat(Lane lane) {
  return {lane, lane};
}

[[gnu::always_inline]] inline Vector RepeatWord(const void* from) {
  uint64_t word = 0;
  __builtin_memcpy(&word, from, sizeof word);
  return Repeat(vdupq_n_u64(word));
}

[[gnu::always_inline]] inline bool IsZero(Vector bits) {
  return vmaxvq_u32(vorrq_u32(bits.low, bits.high)) == 0;
}

[[gnu::always_inline]] inline Lane SumLanes(Vector numbers) {
  return vaddq_u32(numbers.low, numbers.high);
}

[[gnu::always_inline]] inline int32_t TotalOfLane(Lane sum) {
  return vaddvq_s32(sum);
}

[[gnu::always_inline]] inline Lane MultiplyLanePairs(int16x8_t a, int16x8_t b) {
  return vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b));
}

PREPACK_UNARY(Vector, Vector, AddTwos, maddubs_epi16, vpaddlq_u8)
PREPACK_UNARY(Vector, Vector, AddSignedTwos, maddubs_epi16, vpaddlq_s8)
PREPACK_UNARY(Vector, Vector, AddFours, madd_epi16, vpaddlq_s16)

[[gnu::always_inline]] inline Vector AddEights(Vector bytes) {
  return {vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(bytes.low))),
          vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(bytes.high)))};
}

[[gnu::always_inline]] inline Vector JoinLanes(Lane low, Lane high) {
  return {low, high};
}

[[gnu::always_inline]] inline Lane LowLane(Vector lanes) {
  return lanes.low;
}

[[gnu::always_inline]] inline Lane HighLane(Vector lanes) {
  return lanes.high;
}

[[gnu::always_inline]] inline Vector FirstLanes(Vector a, Vector b) {
  return {a.low, b.low};
}

[[gnu::always_inline]] inline Vector SecondLanes(Vector a, Vector b) {
  return {a.high, b.high};
}

[[gnu::always_inline]] inline Vector ZipHalves(Vector lanes) {
  return {vzip1q_u64(lanes.low, lanes.high), vzip2q_u64(lanes.low, lanes.high)};
}

template <uint32_t... kNumbers>
[[gnu::always_inline]] inline Vector WordsOf() {
  constexpr uint32_t kOf[] = {kNumbers...};
  return {uint32x4_t{kOf[0], kOf[1], kOf[2], kOf[3]}, uint32x4_t{kOf[4], kOf[5], kOf[6], kOf[7]}};
}

[[gnu::always_inline]] inline Vector ShiftRightEach(Vector numbers, Vector bits) {
  return {vshlq_u32(numbers.low, vnegq_s32(bits.low)),
          vshlq_u32(numbers.high, vnegq_s32(bits.high))};
}

[[gnu::always_inline]] inline Vector WidenBytes(const void* from) {
  const uint8x16_t bytes = LoadLane(from);
  return {vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)};
}

[[gnu::always_inline]] inline Vector WidenSigned(const void* from) {
  const int8x16_t bytes = vld1q_s8(static_cast<const int8_t*>(from));
  return {vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)};
}

[[gnu::always_inline]] inline Vector WidenNumbers(const int16_t* from) {
  const int16x8_t numbers = vld1q_s16(from);
  return {vmovl_s16(vget_low_s16(numbers)), vmovl_high_s16(numbers)};
}

[[gnu::always_inline]] inline Vector WidenSignedToWords(const void* from) {
  const int16x8_t numbers = vmovl_s8(vld1_s8(static_cast<const int8_t*>(from)));
  return {vmovl_s16(vget_low_s16(numbers)), vmovl_high_s16(numbers)};
}

PREPACK_BINARY(Vector, EvenWords, shuffle_ps, vuzp1q_u32)
PREPACK_BINARY(Vector, OddWords, shuffle_ps, vuzp2q_u32)
PREPACK_BINARY(Vector, PackBytes, packus_epi16, vuzp1q_u8)

[[gnu::always_inline]] inline Vector UpperHalves(Vector a, Vector b) {
  return {vuzp2q_u16(a.low, a.high), vuzp2q_u16(b.low, b.high)};
}

[[gnu::always_inline]] inline Vector AddNeighbours(Vector a, Vector b) {
  return {vpaddq_u32(a.low, a.high), vpaddq_u32(b.low, b.high)};
}

[[gnu::always_inline]] inline int8_t LeastByte(Vector bytes) {
  return vminvq_s8(vminq_s8(bytes.low, bytes.high));
}

[[gnu::always_inline]] inline Floats FuseFloats(Floats a, Floats b, Floats c) {
  return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
}

[[gnu::always_inline]] inline Vector BitsOf(Floats values) {
  return {values.low, values.high};
}

[[gnu::always_inline]] inline Doubles WidenFloats(const float* from) {
  const float32x4_t values = vld1q_f32(from);
  return {vcvt_f64_f32(vget_low_f32(values)), vcvt_high_f64_f32(values)};
}

[[gnu::always_inline]] inline Doubles Absolute(Doubles value) {
  return {vabsq_f64(value.low), vabsq_f64(value.high)};
}

[[gnu::always_inline]] inline Doubles WhereFinite(Doubles value, Doubles then) {
  const float64x2_t infinity = vdupq_n_f64(__builtin_inf());
  return {vbslq_f64(vcaltq_f64(value.low, infinity), then.low, infinity),
          vbslq_f64(vcaltq_f64(value.high, infinity), then.high, infinity)};
}

}  // namespace
}  // namespace prepack::PREPACK_LEVEL
