#ifndef PREPACK_BASE_TONE_H_
#define PREPACK_BASE_TONE_H_

#include <cstdint>

namespace prepack {

// What a word says of the state of things. Pages and terminals show each in a colour of its own;
// a verdict has its ToneOf where it is declared.
enum class Tone : uint8_t { kPlain, kGood, kBad, kUnsure };

}  // namespace prepack

#endif  // PREPACK_BASE_TONE_H_
