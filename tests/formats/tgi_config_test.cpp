#include "prepack/formats/gptq/declaration.h"

#include <nlohmann/json.hpp>
#include <string>

#include "catch.h"
#include "formats/defects.h"
#include "formats/gptq_example.h"
#include "status_matchers.h"

namespace prepack {
namespace {

using testing::CheckError;
using testing::Hex;
using testing::SmallGptq;
using testing::TestCheckpoint;

TestCheckpoint WithoutConfig() {
  TestCheckpoint stored = SmallGptq();
  stored.config.erase("quantization_config");
  return stored;
}

TEST_CASE("Settings that stand in tensors are refused with the config that says the same") {
  TestCheckpoint stored = WithoutConfig();
  CHECK(testing::ReadEverything(stored).id() == "config-missing");
  stored.tensors.push_back({"gptq_bits", "I64", {}, Hex("04 00 00 00 00 00 00 00")});
  stored.tensors.push_back({"gptq_groupsize", "I32", {1}, Hex("10 00 00 00")});
  Status status = testing::ReadEverything(stored);
  CHECK(status.id() == "config-in-tensors");
  CheckError(status, ErrorKind::kUnsupported,
             "model.safetensors: tensor gptq_bits: only tensors hold the quantizer's settings");
  CHECK(status.hint() ==
        "Add it: \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, "
        "\"group_size\": 16, \"sym\": false, \"desc_act\": false}");
  stored.tensors.push_back({"gptq_sym", "BOOL", {}, Hex("01")});
  CHECK(testing::ReadEverything(stored).hint().find("\"sym\": true") != std::string::npos);
}

TEST_CASE("What the advice says makes the checkpoint readable") {
  TestCheckpoint stored = WithoutConfig();
  stored.tensors.push_back({"gptq_bits", "I64", {}, Hex("04 00 00 00 00 00 00 00")});
  stored.tensors.push_back({"gptq_groupsize", "I64", {}, Hex("10 00 00 00 00 00 00 00")});
  stored.tensors.push_back({"gptq_sym", "BOOL", {}, Hex("01")});
  const std::string hint = testing::ReadEverything(stored).hint();
  const size_t at = hint.find('{');
  REQUIRE(at != std::string::npos);
  stored.config["quantization_config"] = Json::parse(hint.substr(at));
  testing::RequireOk(testing::ReadEverything(stored));
  CHECK(testing::FindingsOf(stored).empty());
}

TEST_CASE("Settings of odd tensors are left out of the advice") {
  TestCheckpoint stored = WithoutConfig();
  stored.tensors.push_back({"gptq_groupsize", "F32", {2}, Hex("00 00 00 00 00 00 00 00")});
  const Status status = testing::ReadEverything(stored);
  CHECK(status.id() == "config-in-tensors");
  CHECK(status.hint().find("\"bits\": 4, \"group_size\": 128") != std::string::npos);
}

}  // namespace
}  // namespace prepack
