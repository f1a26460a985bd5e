#pragma once

#include <string>
#include <string_view>

#include "catch.h"
#include "prepack/container/safetensors_writer.h"

namespace prepack::testing {

// All that is in front of the data. Pieces follow each other without a gap.
inline std::string HeaderBytes(const SafetensorsPlan& plan) {
  std::string bytes;
  const Status status = plan.VisitHeader([&](uint64_t offset, std::string_view text) {
    REQUIRE(offset == bytes.size());
    bytes += text;
    return Status();
  });
  REQUIRE(status.ok());
  return bytes;
}

}  // namespace prepack::testing
