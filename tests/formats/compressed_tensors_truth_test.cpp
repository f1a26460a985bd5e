// Real checkpoints, against what an independent implementation makes of them.

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "base/float_convert.h"
#include "catch.h"
#include "formats/read_helpers.h"
#include "temp_folder.h"

namespace prepack {
namespace {

using testing::Codes;
using testing::Dequantize;
using testing::Fixture;
using testing::MustOpen;
using testing::OpenedModel;
using testing::Scales;
using testing::ZeroPoints;

std::vector<float> ReadFloats(const Checkpoint& checkpoint, const std::string& name) {
  const StoredTensor* tensor = checkpoint.Find(name);
  INFO(name);
  REQUIRE(tensor != nullptr);
  REQUIRE(tensor->dtype == DType::kF32);
  std::vector<std::byte> bytes(tensor->bytes);
  REQUIRE(checkpoint.Read(*tensor, 0, bytes).ok());
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST_CASE("Real checkpoints dequantize to the truth, to the bit") {
  struct Case {
    std::string name;
    std::string scheme;
  };
  const std::vector<Case> cases = {
      {"ct-w4a16-g128-sym", "w4a16 group 128 symmetric"},
      {"ct-w4a16-g32-asym", "w4a16 group 32 asymmetric"},
      {"ct-w4a16-channel-sym", "w4a16 channel symmetric"},
      {"ct-w4a16-g128-sharded", "w4a16 group 128 symmetric"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const OpenedModel opened = MustOpen(Fixture("checkpoints/" + c.name));
    const Result<Checkpoint> truth = Checkpoint::Open(Fixture("truth/" + c.name + ".safetensors"));
    REQUIRE(truth.ok());
    CHECK(opened.model.format == "compressed-tensors");
    CHECK(opened.model.findings.empty());
    REQUIRE(opened.model.modules.size() == 7);
    REQUIRE(truth->tensors().size() == 14);
    for (const auto& module : opened.model.modules) {
      CAPTURE(module->module());
      CHECK(DescribeScheme(module->scheme()) == c.scheme);
      CHECK(module->stored_scale_dtype() == DType::kBF16);
      const uint64_t last = module->n() - 16;
      for (const auto& [suffix, n0] :
           {std::pair{".rows_first16", uint64_t{0}}, {".rows_last16", last}}) {
        const std::vector<float> expected = ReadFloats(*truth, module->module() + suffix);
        const std::vector<float> found = Dequantize(*module, n0, 16);
        REQUIRE(found.size() == expected.size());
        size_t different = 0;
        for (size_t i = 0; i < found.size(); ++i) {
          if (std::bit_cast<uint32_t>(found[i]) != std::bit_cast<uint32_t>(expected[i]))
            ++different;
        }
        CHECK(different == 0);
      }
    }
  }
}

TEST_CASE("A sharded checkpoint reads as the one that it was split from") {
  const OpenedModel whole = MustOpen(Fixture("checkpoints/ct-w4a16-g128-sym"));
  const OpenedModel sharded = MustOpen(Fixture("checkpoints/ct-w4a16-g128-sharded"));
  REQUIRE(sharded.checkpoint->files().size() == 3);
  REQUIRE(sharded.model.modules.size() == whole.model.modules.size());
  for (size_t i = 0; i < whole.model.modules.size(); ++i) {
    const QuantizedLinear& a = *whole.model.modules[i];
    const QuantizedLinear& b = *sharded.model.modules[i];
    REQUIRE(a.module() == b.module());
    CHECK(a.scheme() == b.scheme());
    CHECK(a.source_tensors() == b.source_tensors());
    CHECK(a.source_bytes() == b.source_bytes());
    CHECK(Codes(a) == Codes(b));
    CHECK(Scales(a, 0, a.n()) == Scales(b, 0, b.n()));
    CHECK(ZeroPoints(a, 0, a.n()) == ZeroPoints(b, 0, b.n()));
  }
}

TEST_CASE("A real module names its tensors and shapes") {
  const OpenedModel opened = MustOpen(Fixture("checkpoints/ct-w4a16-g32-asym"));
  const QuantizedLinear& linear = opened.Module("model.layers.0.mlp.down_proj");
  CHECK(linear.n() == 384);
  CHECK(linear.k() == 1536);
  CHECK(linear.groups() == 48);
  CHECK(linear.source_tensors() ==
        std::vector<std::string>{"model.layers.0.mlp.down_proj.weight_packed",
                                 "model.layers.0.mlp.down_proj.weight_scale",
                                 "model.layers.0.mlp.down_proj.weight_zero_point",
                                 "model.layers.0.mlp.down_proj.weight_shape"});
  CHECK(linear.source_bytes() == 384 * 192 * 4 + 384 * 48 * 2 + 48 * 48 * 4 + 16);
}

}  // namespace
}  // namespace prepack
