#pragma once

// Random choices of tests: the same in every run of the tests; tools/soak gives other seeds.

#include <cstdint>
#include <cstdlib>
#include <string>

namespace prepack::testing {

inline uint64_t Seed(uint64_t otherwise) {
  const char* const seed = std::getenv("PREPACK_TEST_SEED");
  return seed == nullptr ? otherwise : std::stoull(seed);
}

}  // namespace prepack::testing
