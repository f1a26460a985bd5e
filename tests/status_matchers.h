#pragma once

// What tests ask of a Status: its kind, and the decisive part of the text that the user sees.

#include <string>
#include <string_view>

#include "catch.h"
#include "prepack/base/status.h"

namespace prepack::testing {

inline void CheckError(const Status& status, ErrorKind kind, std::string_view text) {
  REQUIRE_FALSE(status.ok());
  INFO("message: " << status.ToString());
  INFO("wanted:  " << text);
  CHECK(static_cast<int>(status.kind()) == static_cast<int>(kind));
  CHECK(status.ToString().find(text) != std::string::npos);
}

inline void RequireOk(const Status& status) {
  INFO(status.ToString());
  REQUIRE(status.ok());
}

// The value of a Result that must have one.
template <typename T>
T Value(Result<T> result) {
  RequireOk(result.status());
  return *std::move(result);
}

}  // namespace prepack::testing
