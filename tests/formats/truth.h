#ifndef PREPACK_TESTS_FORMATS_TRUTH_H_
#define PREPACK_TESTS_FORMATS_TRUTH_H_

// Real checkpoints against what an independent implementation makes of them: see
// fixtures/README.md.

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "formats/read_helpers.h"
#include "golden_file.h"

namespace prepack::testing {

// Compares the first and the last 16 rows of every module, to the bit. `modules` is how many there
// must be.
inline void CheckAgainstTruth(const OpenedModel& opened, const std::string& name, size_t modules) {
  const GoldenFile truth(Fixture("truth/" + name + ".safetensors"));
  REQUIRE(opened.model.modules.size() == modules);
  for (const auto& module : opened.model.modules) {
    CAPTURE(name, module->module());
    for (const auto& [suffix, n0] :
         {std::pair{".rows_first16", uint64_t{0}}, {".rows_last16", module->n() - 16}}) {
      const auto expected = truth.Values<float>(module->module() + suffix);
      const std::vector<float> found = Dequantize(*module, n0, 16);
      CHECK(std::ranges::equal(found, expected, [](float a, float b) {
        return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
      }));
    }
  }
}

}  // namespace prepack::testing

#endif  // PREPACK_TESTS_FORMATS_TRUTH_H_
