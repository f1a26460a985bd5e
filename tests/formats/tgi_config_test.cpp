#include "prepack/formats/gptq/config.h"

#include <nlohmann/json.hpp>
#include <string>

#include "catch.h"
#include "formats/defects.h"
#include "formats/gptq_example.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

TestCheckpoint WithoutConfig() {
  TestCheckpoint stored = SmallGptq();
  stored.config.erase("quantization_config");
  return stored;
}

TEST_CASE("settings that stand in tensors are refused with the config that says the same") {
  TestCheckpoint stored = WithoutConfig();
  CHECK(ReadEverything(stored).id() == "config-missing");
  stored.tensors.push_back({"gptq_bits", "I64", {}, Hex("04 00 00 00 00 00 00 00")});
  stored.tensors.push_back({"gptq_groupsize", "I32", {1}, Hex("10 00 00 00")});
  Status status = ReadEverything(stored);
  CHECK(status.id() == "config-in-tensors");
  CheckError(status, ErrorKind::kUnsupported,
             "model.safetensors: tensor gptq_bits: only tensors hold the quantizer's settings");
  CHECK(status.hint() ==
        "Add it: \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, "
        "\"group_size\": 16, \"sym\": false, \"desc_act\": false}");
  stored.tensors.push_back({"gptq_sym", "BOOL", {}, Hex("01")});
  CHECK(ReadEverything(stored).hint().find("\"sym\": true") != std::string::npos);
}

TEST_CASE("what the advice says makes the checkpoint readable") {
  TestCheckpoint stored = WithoutConfig();
  stored.tensors.push_back({"gptq_bits", "I64", {}, Hex("04 00 00 00 00 00 00 00")});
  stored.tensors.push_back({"gptq_groupsize", "I64", {}, Hex("10 00 00 00 00 00 00 00")});
  stored.tensors.push_back({"gptq_sym", "BOOL", {}, Hex("01")});
  const std::string hint = ReadEverything(stored).hint();
  const size_t at = hint.find('{');
  REQUIRE(at != std::string::npos);
  stored.config["quantization_config"] = Json::parse(hint.substr(at));
  RequireOk(ReadEverything(stored));
  CHECK(FindingsOf(stored).empty());
}

TEST_CASE("settings of odd tensors are left out of the advice") {
  TestCheckpoint stored = WithoutConfig();
  stored.tensors.push_back({"gptq_groupsize", "F32", {2}, Hex("00 00 00 00 00 00 00 00")});
  const Status status = ReadEverything(stored);
  CHECK(status.id() == "config-in-tensors");
  CHECK(status.hint().find("\"bits\": 4, \"group_size\": 128") != std::string::npos);
}

}  // namespace
}  // namespace prepack::testing
