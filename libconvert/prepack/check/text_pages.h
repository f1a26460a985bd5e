#ifndef PREPACK_CHECK_TEXT_PAGES_H_
#define PREPACK_CHECK_TEXT_PAGES_H_

// Text among codes: the page of a server that could not deliver the file, a log, a listing.
// Whatever the format and its number of bits, codes use all 256 bytes, or at least such with the
// highest bit set, which text never has.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace prepack {

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

#endif  // PREPACK_CHECK_TEXT_PAGES_H_
