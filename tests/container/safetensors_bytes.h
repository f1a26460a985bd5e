#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace prepack::testing {

// The bytes of a safetensors file, put together by hand: the writer under test has no part in it.
inline std::string SafetensorsBytes(std::string_view json, std::string_view data) {
  std::string bytes;
  for (unsigned shift = 0; shift < 64; shift += 8)
    bytes += static_cast<char>(uint64_t{json.size()} >> shift & 0xFF);
  return bytes.append(json).append(data);
}

}  // namespace prepack::testing
