// What was found of rows of a GGUF file, as notes keep it: what is read is what was written, to the
// last bit of each sum.

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "catch.h"
#include "prepack/verify/gguf_verification.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

constexpr OutputBlock kRowsBlock{.n0 = 7, .rows = 2, .channels = 3};

GgufFound FoundExample(float wrong) {
  GgufFound found;
  found.exactness.identical = 96;
  found.exactness.rounded = 4;
  found.gemm.identical = 100;
  found.sums.zeros = false;
  found.sums.channels = 3;
  found.sums.Resize(2);
  const std::vector<double> signal = {0.1, 1.0 / 3, -2.5e-9, 1e9, 0.7, -3};
  const std::vector<float> value = {0.1F, 0.33F, -2.4e-9F, 1e9F, 0.7F, wrong};
  found.sums.kernel[0].Add(kRowsBlock, signal, value);
  found.sums.end_to_end[1].Add(kRowsBlock, signal, value);
  return found;
}

TEST_CASE("what was found of rows is read as it was written") {
  const float wrong = GENERATE(-2.9F, std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN());
  const GgufFound found = FoundExample(wrong);
  const std::string json = GgufFoundJson(found).dump();
  const GgufFound read = Value(ReadGgufFound(json, "note"));
  // A sum that is not finite has no error (CompensatedSum).
  if (std::isfinite(wrong)) CHECK(GgufFoundJson(read).dump() == json);
  CHECK(read.exactness.identical == 96);
  CHECK(read.exactness.rounded == 4);
  CHECK(read.gemm.identical == 100);
  CHECK(read.sums.channels == 3);
  CHECK_FALSE(read.sums.zeros);
  const Figure before = found.sums.kernel[0].Result();
  const Figure after = read.sums.kernel[0].Result();
  CHECK(after.worst_channel == before.worst_channel);
  if (!std::isnan(before.sqnr_db)) CHECK(after.sqnr_db == before.sqnr_db);
}

TEST_CASE("a note that is none is refused") {
  Json json = GgufFoundJson(FoundExample(0));
  CheckError(ReadGgufFound("[]", "note").status(), ErrorKind::kMalformed, "note");
  CheckError(ReadGgufFound("{}", "note").status(), ErrorKind::kMalformed, "exactness");
  json["kernel"].erase(0);
  CheckError(ReadGgufFound(json.dump(), "note").status(), ErrorKind::kMalformed,
             "differ in length");
  json["kernel"][0].erase("signal");
  CheckError(ReadGgufFound(json.dump(), "note").status(), ErrorKind::kMalformed, "signal");
}

}  // namespace
}  // namespace prepack::testing
