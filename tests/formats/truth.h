#ifndef PREPACK_TESTS_FORMATS_TRUTH_H_
#define PREPACK_TESTS_FORMATS_TRUTH_H_

// Real checkpoints, against what an independent implementation makes of them.

#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "formats/read_helpers.h"

namespace prepack::testing {

inline std::vector<float> TruthValues(const Checkpoint& truth, const std::string& name) {
  const StoredTensor* tensor = truth.Find(name);
  INFO(name);
  REQUIRE(tensor != nullptr);
  REQUIRE(tensor->dtype == DType::kF32);
  std::vector<float> values(tensor->bytes / sizeof(float));
  REQUIRE(truth.Read(*tensor, 0, std::as_writable_bytes(std::span(values))).ok());
  return values;
}

// Every module of the fixture dequantizes to its truth, bit by bit; the truth has no other module.
inline OpenedModel CheckTruth(const std::string& name) {
  CAPTURE(name);
  OpenedModel opened = MustOpen(Fixture("checkpoints/" + name));
  const Result<Checkpoint> truth = Checkpoint::Open(Fixture("truth/" + name + ".safetensors"));
  REQUIRE(truth.ok());
  REQUIRE(!opened.model.modules.empty());
  REQUIRE(truth->tensors().size() == 2 * opened.model.modules.size());
  for (const auto& module : opened.model.modules) {
    CAPTURE(module->module());
    for (const auto& [suffix, n0] :
         {std::pair{".rows_first16", uint64_t{0}}, {".rows_last16", module->n() - 16}}) {
      const std::vector<float> expected = TruthValues(*truth, module->module() + suffix);
      const std::vector<float> found = Dequantize(*module, n0, 16);
      REQUIRE(found.size() == expected.size());
      size_t different = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        if (std::bit_cast<uint32_t>(found[i]) != std::bit_cast<uint32_t>(expected[i])) ++different;
      }
      CHECK(different == 0);
    }
  }
  return opened;
}

}  // namespace prepack::testing

#endif  // PREPACK_TESTS_FORMATS_TRUTH_H_
