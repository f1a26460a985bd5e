#pragma once

// The bodies of dense_codes.h. Codes that end up as nibbles are taken out in pairs, as fields of
// twice the width: eight fields of w bits take exactly w bytes of the stream, and one byte each of
// the output until pairs are split.

namespace prepack::PREPACK_LEVEL {

#ifdef PREPACK_SCALAR

namespace {

// Eight fields of kBits, side by side, to eight fields kTo apart (kTo 4 or 8).
template <unsigned kBits, unsigned kTo>
uint64_t Spread8(uint64_t fields) {
  // Halves of four fields, then pairs, then single fields.
  constexpr uint64_t kFour = FieldMask(4 * kBits, 64);
  constexpr uint64_t kTwo = FieldMask(2 * kBits, 4 * kTo);
  constexpr uint64_t kOne = FieldMask(kBits, 2 * kTo);
  fields = (fields & kFour) | ((fields >> (4 * kBits)) & kFour) << (4 * kTo);
  fields = (fields & kTwo) | ((fields >> (2 * kBits)) & kTwo) << (2 * kTo);
  return (fields & kOne) | ((fields >> kBits) & kOne) << kTo;
}

template <uint32_t kBits>
void UnpackDense(const uint8_t* stream, size_t count, uint8_t* out) {
  constexpr unsigned kTo = kBits < 4 ? 4 : 8;
  size_t left = (count * kBits + 7) / 8;
  // Eight bytes are loaded although kBits of them count: the masks drop the others.
  for (; left >= 8 && count >= 8; count -= 8, left -= kBits) {
    uint64_t fields = 0;
    std::memcpy(&fields, stream, 8);
    fields = Spread8<kBits, kTo>(fields);
    std::memcpy(out, &fields, kTo);
    stream += kBits;
    out += kTo;
  }
  while (count > 0) {
    const size_t codes = count < 8 ? count : 8;
    const uint64_t used = (uint64_t{1} << (codes * kBits)) - 1;
    const uint64_t fields = LoadLittle(stream, (codes * kBits + 7) / 8) & used;
    StoreLittle(Spread8<kBits, kTo>(fields), (codes * kTo + 7) / 8, out);
    stream += kBits;
    out += kTo;
    count -= codes;
  }
}

}  // namespace

void JoinWords(uint32_t used, const uint8_t* words, size_t count, uint8_t* stream) {
  const uint64_t mask = (uint64_t{1} << used) - 1;
  uint64_t pending = 0;  // bits that are not written yet
  unsigned bits = 0;     // how many: fewer than 32 between words
  for (size_t i = 0; i < count; ++i) {
    uint32_t word = 0;
    std::memcpy(&word, words + 4 * i, 4);
    pending |= (word & mask) << bits;
    bits += used;
    if (bits >= 32) {
      std::memcpy(stream, &pending, 4);
      stream += 4;
      pending >>= 32;
      bits -= 32;
    }
  }
  StoreLittle(pending, (bits + 7) / 8, stream);
}

#else

// AVX-512 without VBMI gains nothing over AVX2 here.
#if defined(PREPACK_VBMI) || !defined(PREPACK_AVX512)

namespace {

// Bytes of fields, as they are written: pairs of codes of kBits become two nibbles.
template <uint32_t kBits>
[[gnu::always_inline]] inline Vector CodesOfFields(Vector fields) {
  constexpr int kLow = (1 << kBits) - 1;
  if constexpr (kBits > 4) {
    return And(fields, Bytes(kLow));
  } else {
    constexpr int kUp = 4 - static_cast<int>(kBits);
    return Or(And(fields, Bytes(kLow)), And(ShiftLeft<kUp>(fields), Bytes(kLow << 4)));
  }
}

template <uint32_t kBits>
struct Fields {
  static constexpr size_t kCodes = kBits <= 3 ? 2 : 1;  // of a field
  static constexpr size_t kWidth = kBits * kCodes;      // and so many bytes are eight fields
};

#ifdef PREPACK_VBMI

// What eight fields need of the stream in every eight bytes, where one instruction takes eight bits
// from any bit on for each byte.
struct FieldPlaces {
  alignas(kVectorBytes) uint8_t bytes[kVectorBytes];
  alignas(kVectorBytes) uint8_t bits[kVectorBytes];
};

constexpr FieldPlaces PlacesOfFields(size_t width) {
  FieldPlaces places = {};
  for (size_t i = 0; i < kVectorBytes; ++i) {
    places.bytes[i] = static_cast<uint8_t>(i / 8 * width + i % 8);
    places.bits[i] = static_cast<uint8_t>(i % 8 * width);
  }
  return places;
}

template <uint32_t kBits>
[[gnu::always_inline]] inline size_t UnpackFields(const uint8_t* stream, size_t count,
                                                  uint8_t* out) {
  using Of = Fields<kBits>;
  static constexpr FieldPlaces kPlaces = PlacesOfFields(Of::kWidth);
  constexpr size_t kStepBytes = kVectorBytes / 8 * Of::kWidth;
  const Vector bytes = Load(kPlaces.bytes);
  const Vector bits = Load(kPlaces.bits);
  const size_t stream_bytes = (count * kBits + 7) / 8;
  size_t done = 0;
  for (size_t at = 0; at + kVectorBytes <= stream_bytes; at += kStepBytes, done += kVectorBytes) {
    const Vector packed = Load(stream + at);
    const Vector fields =
        _mm512_multishift_epi64_epi8(bits, _mm512_permutexvar_epi8(bytes, packed));
    Store(out + done, CodesOfFields<kBits>(fields));
  }
  return done * Of::kCodes;
}

#else

// Eight fields of a lane in 16 bits each: their two bytes, and by how much they are shifted up, so
// that they end at the top.
struct FieldPlaces {
  alignas(kLaneBytes) uint8_t bytes[kLaneBytes];
  alignas(kLaneBytes) uint16_t factors[kLaneBytes / 2];
};

constexpr FieldPlaces PlacesOfFields(size_t width) {
  FieldPlaces places = {};
  for (size_t i = 0; i < 8; ++i) {
    const size_t bit = i * width;
    places.bytes[2 * i] = static_cast<uint8_t>(bit / 8);
    places.bytes[2 * i + 1] = static_cast<uint8_t>(bit / 8 + 1);
    places.factors[i] = static_cast<uint16_t>(1U << (16 - width - bit % 8));
  }
  return places;
}

template <uint32_t kBits>
[[gnu::always_inline]] inline size_t UnpackFields(const uint8_t* stream, size_t count,
                                                  uint8_t* out) {
  using Of = Fields<kBits>;
  constexpr size_t kWidth = Of::kWidth;
  static constexpr FieldPlaces kPlaces = PlacesOfFields(kWidth);
  constexpr size_t kStepBytes = kVectorBytes / 8 * kWidth;
  constexpr size_t kRead = 3 * kWidth + kLaneBytes;  // of the stream in a step
  const Vector bytes = Repeat(LoadLane(kPlaces.bytes));
  const Vector factors = Repeat(LoadLane(kPlaces.factors));
  const size_t stream_bytes = (count * kBits + 7) / 8;
  size_t done = 0;
  for (size_t at = 0; at + kRead <= stream_bytes; at += kStepBytes, done += kVectorBytes) {
    const uint8_t* from = stream + at;
    // Fields 0 … 7 and 16 … 23, and the others: packing joins them lane by lane.
    const Vector even = ShuffleBytes(LoadTwoLanes(from, from + 2 * kWidth), bytes);
    const Vector odd = ShuffleBytes(LoadTwoLanes(from + kWidth, from + 3 * kWidth), bytes);
    const Vector fields = PackBytes(ShiftRight<16 - kWidth>(Multiply16(even, factors)),
                                    ShiftRight<16 - kWidth>(Multiply16(odd, factors)));
    Store(out + done, CodesOfFields<kBits>(fields));
  }
  return done * Of::kCodes;
}

// Two codes of two bits are a nibble of the stream: a table has the two nibbles that they become.
template <>
[[gnu::always_inline]] inline size_t UnpackFields<2>(const uint8_t* stream, size_t count,
                                                     uint8_t* out) {
  const Vector table = Repeat(LaneOf<0x00, 0x01, 0x02, 0x03, 0x10, 0x11, 0x12, 0x13, 0x20, 0x21,
                                     0x22, 0x23, 0x30, 0x31, 0x32, 0x33>());
  const size_t whole = count / 4 / kVectorBytes * kVectorBytes;
  for (size_t at = 0; at < whole; at += kVectorBytes) {
    // Interleaving takes eight bytes of each lane at a time.
    const Vector packed = ZipHalves(Load(stream + at));
    const Vector low = ShuffleBytes(table, And(packed, Bytes(0x0F)));
    const Vector high = ShuffleBytes(table, And(ShiftRight<4>(packed), Bytes(0x0F)));
    Store(out + 2 * at, UnpackLow<1>(low, high));
    Store(out + 2 * at + kVectorBytes, UnpackHigh<1>(low, high));
  }
  return 4 * whole;
}

// Eight codes of three bits are three bytes, of which four are the upper twelve bits of two bytes,
// and the other four the lower twelve.
template <>
[[gnu::always_inline]] inline size_t UnpackFields<3>(const uint8_t* stream, size_t count,
                                                     uint8_t* out) {
  constexpr size_t kStepBytes = kVectorBytes * 3 / 4;
  constexpr size_t kSecond = kStepBytes - kLaneBytes;  // where the second lane ends with the step
  // Twos of the bytes of both lanes: the first twelve and the last.
  const Vector twos = JoinLanes(LaneOf<0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11>(),
                                LaneOf<4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11, 12, 13, 14, 14, 15>());
  const Vector to_top = Numbers32(1 << 16 | 1 << 4);
  const size_t steps = count / (2 * kVectorBytes);
  for (size_t i = 0; i < steps; ++i) {
    const uint8_t* from = stream + i * kStepBytes;
    const Vector bytes = ShuffleBytes(LoadTwoLanes(from, from + kSecond), twos);
    const Vector fours = Multiply16(bytes, to_top);
    const Vector pairs =
        Or(And(ShiftRight<4>(fours), Numbers(0x003F)), And(ShiftRight<2>(fours), Numbers(0x3F00)));
    // The upper code of each pair moves up by one bit: it is added to itself.
    Store(out + i * kVectorBytes, Add16(pairs, And(pairs, Bytes(0x38))));
  }
  return steps * 2 * kVectorBytes;
}

#endif

template <uint32_t kBits>
void UnpackDense(const uint8_t* stream, size_t count, uint8_t* out) {
  const size_t done = UnpackFields<kBits>(stream, count, out);
  if (done == count) return;
  Below().unpack_codes(kBits, stream + done * kBits / 8, count - done,
                       out + done / Fields<kBits>::kCodes);
}

}  // namespace

#endif

#ifndef PREPACK_VBMI

namespace {

#ifdef PREPACK_AVX512
// The first quarter of 64 bytes, and so on, `step` bytes apart. Later ones overwrite what is too
// much of earlier ones.
[[gnu::always_inline]] inline void StoreLanes(Vector value, size_t step, uint8_t* to) {
  StoreLane(to, _mm512_castsi512_si128(value));
  StoreLane(to + step, _mm512_extracti32x4_epi32(value, 1));
  StoreLane(to + 2 * step, _mm512_extracti32x4_epi32(value, 2));
  StoreLane(to + 3 * step, _mm512_extracti32x4_epi32(value, 3));
}
#else
[[gnu::always_inline]] inline void StoreLanes(Vector value, size_t step, uint8_t* to) {
  StoreTwoLanes(to, to + step, value);
}
#endif

// Words in lanes: the low bits of four become a run of 4 · kUsed bits, which are whole bytes.
template <int kUsed>
[[gnu::always_inline]] inline void JoinWordsInLanes(const uint8_t* words, size_t count,
                                                    uint8_t* stream) {
  constexpr size_t kWords = 4 * kLanes;
  constexpr size_t kLaneOut = 4 * kUsed / 8;
  constexpr int64_t kLow = (int64_t{1} << kUsed) - 1;
  constexpr int64_t kHigh = kLow << kUsed;
  const Vector low = RepeatWord(&kLow);
  const Vector high = RepeatWord(&kHigh);
  size_t i = 0;
  // A last lane writes a byte or two too much, so a word has to come behind it.
  for (; i + kWords < count; i += kWords) {
    const Vector pairs = Load(words + 4 * i);
    const Vector joined = Or(And(pairs, low), And(ShiftRight64<32 - kUsed>(pairs), high));
    const Vector second = UnpackHigh<8>(joined, joined);
    const Vector first = Or(joined, ShiftLeft64<2 * kUsed>(second));
    const Vector rest = ShiftRight64<64 - 2 * kUsed>(second);
    StoreLanes(UnpackLow<8>(first, rest), kLaneOut, stream + i / 4 * kLaneOut);
  }
  Below().join_words(kUsed, words + 4 * i, count - i, stream + i / 4 * kLaneOut);
}

}  // namespace

void JoinWords(uint32_t used, const uint8_t* words, size_t count, uint8_t* stream) {
  if (used == 28) return JoinWordsInLanes<28>(words, count, stream);
  JoinWordsInLanes<30>(words, count, stream);
}

#endif

#endif

// AVX-512 without VBMI gains nothing over AVX2 here.
#if defined(PREPACK_VBMI) || !defined(PREPACK_AVX512)

void UnpackCodes(uint32_t bits, const uint8_t* stream, size_t count, uint8_t* out) {
  switch (bits) {
    case 1:
      return UnpackDense<1>(stream, count, out);
    case 2:
      return UnpackDense<2>(stream, count, out);
    case 3:
      return UnpackDense<3>(stream, count, out);
    case 5:
      return UnpackDense<5>(stream, count, out);
    case 6:
      return UnpackDense<6>(stream, count, out);
    default:
      return UnpackDense<7>(stream, count, out);
  }
}

#endif

}  // namespace prepack::PREPACK_LEVEL
