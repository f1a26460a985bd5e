#pragma once

// xxh3-128 of a stream of bytes, written as 32 lower-case hex digits (the canonical form that
// `xxh128sum` prints). It guards against damage and mix-ups, not against an attacker.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace prepack {

// Files are read and hashed in pieces of so many bytes: they stay in the L2 cache between the two.
inline constexpr uint64_t kHashedPieceBytes = 128ULL * 1024;

// A hash as it is kept: models have hundreds of thousands, and as text each takes five times as
// much memory.
struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;

  std::string Hex() const;
  // NOLINTNEXTLINE(modernize-use-nullptr): there is none to use
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

// Reads 32 lower-case hex digits; nothing for any other text.
std::optional<Hash128> ParseHash128(std::string_view hex);

class Xxh3Hasher {
 public:
  Xxh3Hasher();
  ~Xxh3Hasher();
  Xxh3Hasher(Xxh3Hasher&&) noexcept;
  Xxh3Hasher& operator=(Xxh3Hasher&&) noexcept;

  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view text) { Update(std::as_bytes(std::span(text.data(), text.size()))); }
  // The hash of everything so far.
  Hash128 Digest() const;
  std::string HexDigest() const { return Digest().Hex(); }
  // Starts again, as if nothing had been hashed.
  void Reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Hash128 Xxh3(std::string_view text);
std::string Xxh3Hex(std::span<const std::byte> bytes);
std::string Xxh3Hex(std::string_view text);

// True: no two of the texts are the same, because no two hashes are. False: some may be.
bool HashesDiffer(std::span<const std::string_view> texts);

}  // namespace prepack
