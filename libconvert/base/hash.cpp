#include "base/hash.h"

#include <fmt/format.h>
#ifdef PREPACK_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>  // lets the names of xxhash.h stand for the version of this CPU
#else
#include <xxhash.h>
#endif

namespace prepack {

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

std::string Xxh3Hasher::HexDigest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void Xxh3Hasher::Reset() {
  XXH3_128bits_reset(state_->xxh);
}

std::string Xxh3Hex(std::span<const std::byte> bytes) {
  Xxh3Hasher hasher;
  hasher.Update(bytes);
  return hasher.HexDigest();
}

std::string Xxh3Hex(std::string_view text) {
  Xxh3Hasher hasher;
  hasher.Update(text);
  return hasher.HexDigest();
}

}  // namespace prepack
