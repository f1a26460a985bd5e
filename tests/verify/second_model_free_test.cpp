// Which calibration-free exports of AutoRound the second path takes for old ones.

#include "prepack/verify/second/tensors.h"

#include <nlohmann/json.hpp>
#include <string>

#include "formats/auto_round_example.h"
#include "prepack/container/checkpoint.h"
#include "prepack/verify/second/decoder.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/second_weights.h"

namespace prepack::testing {
namespace {

// Modules of codes 4 … 8 around zero points of 6, of which all but the first field of every group
// are stored as `zeros` says.
TestCheckpoint ModelFree(unsigned zeros, size_t modules = 2) {
  AwqNumbers m{.n = 32, .k = 128, .group_size = 32};
  for (uint64_t i = 0; i < m.n * m.k; ++i) m.codes.push_back(static_cast<uint8_t>(4 + i % 5));
  m.scales.assign(m.n * m.groups(), 0x2A66);
  TestCheckpoint stored = ArCheckpoint({}, "auto_round", false);
  ArConfig(stored)["model_free"] = true;
  for (size_t i = 0; i < modules; ++i) {
    const std::string name = "model.layers." + std::to_string(i) + ".mlp.up_proj";
    for (TestTensor& tensor : ArGptqTensors(name, m, zeros)) {
      if (tensor.name.ends_with("qzeros")) {
        for (size_t g = 0; g < m.groups(); ++g) {
          tensor.bytes[g * 16] = static_cast<std::byte>(zeros >> 4 << 4 | (zeros - 1) % 16);
        }
      }
      stored.tensors.push_back(std::move(tensor));
    }
  }
  return stored;
}

bool IsOld(const TestCheckpoint& stored) {
  const TempFolder folder;
  stored.Write(folder.path());
  return IsOldModelFree(Value(Checkpoint::Open(folder.path())));
}

TEST_CASE("the second path tells old calibration-free exports by their weights") {
  // Of each module 32 codes of 32 channels count.
  CHECK(IsOld(ModelFree(0x55, 4)));
  CHECK_FALSE(IsOld(ModelFree(0x66, 4)));
  TestCheckpoint stored = ModelFree(0x66, 4);
  ArConfig(stored)["autoround_version"] = "0.15.1";
  CHECK_FALSE(IsOld(stored));
  stored = ModelFree(0x55, 4);
  ArConfig(stored)["autoround_version"] = "0.16.1";
  CHECK(IsOld(stored));
  ArConfig(stored)["packing_format"] = "auto_round:gptqmodel";
  CHECK_FALSE(IsOld(stored));
  stored = ModelFree(0x55, 4);
  ArConfig(stored).erase("model_free");
  CHECK_FALSE(IsOld(stored));
}

TEST_CASE("the second path asks for the version where weights do not tell") {
  const auto with = [](const Json& version) {
    TestCheckpoint stored = ModelFree(0x55, 3);
    ArConfig(stored)["autoround_version"] = version;
    return IsOld(stored);
  };
  CHECK_FALSE(IsOld(ModelFree(0x55, 3)));
  for (const char* old : {"0.15.1", "0.9", "0.4.7.dev0"}) CHECK(with(old));
  for (const char* other : {"0.16.0", "0.16.1", "0.100", "1.0", "", "0.", "v0.1"}) {
    CHECK_FALSE(with(other));
  }
  CHECK_FALSE(with(15));
  // Zero points that are all one number are those of symmetric modules.
  TestCheckpoint symmetric = ModelFree(0x77, 8);
  for (TestTensor& tensor : symmetric.tensors) {
    if (tensor.name.ends_with("qzeros")) {
      tensor.bytes.assign(tensor.bytes.size(), std::byte{0x77});
    }
  }
  CHECK_FALSE(IsOld(symmetric));
}

TEST_CASE("the second path decodes zero points as the export stored them") {
  const auto decode = [](const TestCheckpoint& stored) {
    const TempFolder folder;
    stored.Write(folder.path());
    const Checkpoint source = Value(Checkpoint::Open(folder.path()));
    const SecondDecoder decoder = Value(SecondDecoder::Make(source, "auto-round"));
    DecodedRows rows;
    RequireOk(decoder.Decode(kArModule, 128, 1, 1, rows));
    return rows.steps[0];
  };
  // Code 7 of channel 1: 128 mod 5 is 3.
  CHECK(decode(ModelFree(0x55, 4)) == 1);
  CHECK(decode(ModelFree(0x66, 4)) == 1);
  CHECK(decode(ModelFree(0x55, 3)) == 2);
}

TEST_CASE("symmetric modules of an asymmetric calibration-free export store z - 1") {
  TestCheckpoint stored = ModelFree(0x66, 4);
  ArConfig(stored)["extra_config"] = {{kArModule, {{"sym", true}}}};
  TestTensor& zeros = stored.At(kArModule + ".qzeros");
  const auto first_step = [&] {
    const TempFolder folder;
    stored.Write(folder.path());
    const Checkpoint source = Value(Checkpoint::Open(folder.path()));
    DecodedRows rows;
    RequireOk(Value(SecondDecoder::Make(source, "auto-round")).Decode(kArModule, 128, 1, 1, rows));
    return rows.steps[0];
  };
  zeros.bytes.assign(zeros.bytes.size(), std::byte{0x77});
  CHECK(first_step() == 7 - 8);
  zeros.bytes.back() = std::byte{0x76};
  CHECK(first_step() == 7 - 7);
}

}  // namespace
}  // namespace prepack::testing
