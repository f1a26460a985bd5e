#include "prepack/base/hash.h"

#include <fmt/format.h>

#ifdef PREPACK_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>  // lets the names of xxhash.h stand for the version of this CPU
#else
#include <xxhash.h>
#endif

#include <bit>
#include <charconv>
#include <vector>

namespace prepack {

std::string Hash128::Hex() const {
  return fmt::format("{:016x}{:016x}", high, low);
}

std::optional<Hash128> ParseHash128(std::string_view hex) {
  constexpr size_t kHalf = 16;
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (hex.size() != 2 * kHalf || hex.find_first_not_of(kDigits) != std::string_view::npos) {
    return std::nullopt;
  }
  Hash128 hash;
  std::from_chars(hex.data(), hex.data() + kHalf, hash.high, 16);
  std::from_chars(hex.data() + kHalf, hex.data() + 2 * kHalf, hash.low, 16);
  return hash;
}

struct Xxh3Hasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() { XXH3_128bits_reset(xxh); }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Xxh3Hasher::Xxh3Hasher() : state_(std::make_unique<State>()) {}
Xxh3Hasher::~Xxh3Hasher() = default;
Xxh3Hasher::Xxh3Hasher(Xxh3Hasher&&) noexcept = default;
Xxh3Hasher& Xxh3Hasher::operator=(Xxh3Hasher&&) noexcept = default;

void Xxh3Hasher::Update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

Hash128 Xxh3Hasher::Digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return {hash.high64, hash.low64};
}

void Xxh3Hasher::Reset() {
  XXH3_128bits_reset(state_->xxh);
}

// In one call, without the state of a stream, which takes longer to make than a short text to hash.
Hash128 Xxh3(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return {hash.high64, hash.low64};
}

std::string Xxh3Hex(std::string_view text) {
  return Xxh3(text).Hex();
}

std::string Xxh3Hex(std::span<const std::byte> bytes) {
  return Xxh3Hex(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

bool HashesDiffer(std::span<const std::string_view> texts) {
  // By open addressing, half full at most; an empty place has 0.
  std::vector<uint64_t> places(std::bit_ceil(2 * texts.size() + 1));
  const size_t mask = places.size() - 1;
  for (const std::string_view text : texts) {
    const uint64_t hash = Xxh3(text).low | 1U;
    size_t at = (hash >> 1) & mask;
    for (; places[at] != 0; at = (at + 1) & mask) {
      if (places[at] == hash) return false;
    }
    places[at] = hash;
  }
  return true;
}

}  // namespace prepack
