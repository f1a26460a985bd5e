#pragma once

// Compares a real checkpoint of fixtures/ with what an independent implementation makes of it.

#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "formats/read_helpers.h"
#include "prepack/formats/stored_linear.h"
#include "temp_folder.h"

namespace prepack::testing {

inline std::vector<float> TruthFloats(const Checkpoint& truth, const std::string& name) {
  const StoredTensor* tensor = truth.Find(name);
  INFO(name);
  REQUIRE(tensor != nullptr);
  REQUIRE(tensor->dtype == DType::kF32);
  std::vector<float> values(tensor->bytes / sizeof(float));
  REQUIRE(ReadFloats(truth, *tensor, 0, values).ok());
  return values;
}

inline size_t DifferentBits(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  size_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) ++different;
  }
  return different;
}

// Reads fixtures/checkpoints/NAME and requires its weights to equal fixtures/truth/NAME to the bit
// (the first and the last 16 output channels of each of `modules` modules), and the scheme of every
// module to be `scheme`. What is empty or 0 is not compared.
inline OpenedModel CheckTruth(const std::string& name, const std::string& format = "",
                              size_t modules = 0, const std::string& scheme = "") {
  CAPTURE(name);
  OpenedModel opened = MustOpen(Fixture("checkpoints/" + name));
  const Result<Checkpoint> truth = Checkpoint::Open(Fixture("truth/" + name + ".safetensors"));
  REQUIRE(truth.ok());
  if (!format.empty()) CHECK(opened.model.format == format);
  if (modules != 0) REQUIRE(opened.model.modules.size() == modules);
  REQUIRE_FALSE(opened.model.modules.empty());
  REQUIRE(truth->tensors().size() == 2 * opened.model.modules.size());
  for (const auto& module : opened.model.modules) {
    CAPTURE(module->module());
    if (!scheme.empty()) CHECK(DescribeScheme(module->scheme()) == scheme);
    const uint64_t last = module->n() - 16;
    for (const auto& [suffix, n0] :
         {std::pair{".rows_first16", uint64_t{0}}, {".rows_last16", last}}) {
      const std::vector<float> expected =
          TruthFloats(*truth, std::string(module->module()) + suffix);
      CHECK(DifferentBits(Dequantize(*module, n0, 16), expected) == 0);
    }
  }
  return opened;
}

}  // namespace prepack::testing
