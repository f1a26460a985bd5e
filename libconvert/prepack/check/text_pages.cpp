#include "prepack/check/text_pages.h"

#include <algorithm>
#include <bitset>

namespace prepack {
namespace {

// How much of the beginning is shown.
constexpr uint64_t kShown = 32;

bool IsText(std::byte byte) {
  const auto value = std::to_integer<unsigned>(byte);
  return (value >= 0x20 && value < 0x7F) || value == '\n' || value == '\r' || value == '\t';
}

}  // namespace

std::optional<TextRun> FindText(std::span<const std::byte> bytes) {
  for (uint64_t at = 0; at + kTextProbe <= bytes.size(); at += kTextStep) {
    if (!std::ranges::all_of(bytes.subspan(at, kTextProbe), IsText)) continue;
    uint64_t begin = at;
    while (begin > 0 && IsText(bytes[begin - 1])) --begin;
    uint64_t end = at + kTextProbe;
    while (end < bytes.size() && IsText(bytes[end])) ++end;
    std::bitset<256> letters;
    for (const std::byte byte : bytes.subspan(begin, end - begin)) {
      letters.set(std::to_integer<size_t>(byte));
    }
    if (end - begin < kMinText || letters.count() < kMinLetters) continue;
    std::string beginning;
    for (const std::byte byte : bytes.subspan(begin, kShown)) {
      const auto letter = std::to_integer<char>(byte);
      beginning += letter < ' ' ? ' ' : letter;
    }
    return TextRun{.offset = begin, .bytes = end - begin, .beginning = std::move(beginning)};
  }
  return std::nullopt;
}

}  // namespace prepack
