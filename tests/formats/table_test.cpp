#include <string>

#include "catch.h"
#include "formats/checkpoint_builder.h"
#include "formats/format.h"
#include "formats/quantization_config.h"
#include "temp_folder.h"

namespace prepack {
namespace {

using testing::TempFolder;
using testing::TestCheckpoint;

// How a checkpoint with this config.json is refused.
Status ReadStatus(const Json& config) {
  const TempFolder folder;
  TestCheckpoint stored;
  stored.config = config;
  stored.tensors.push_back({"a.weight", "BF16", {1}, testing::Hex("80 3f")});
  stored.Write(folder.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  INFO(checkpoint.status().ToString());
  REQUIRE(checkpoint.ok());
  const Result<QuantizedModel> model = ReadQuantizedModel(*checkpoint);
  REQUIRE_FALSE(model.ok());
  return model.status();
}

TEST_CASE("Every format has an id, a detector and a reader") {
  REQUIRE_FALSE(AllFormats().empty());
  for (const Format& format : AllFormats()) {
    CHECK_FALSE(format.id.empty());
    CHECK(format.detect != nullptr);
    CHECK(format.read != nullptr);
  }
}

TEST_CASE("Checkpoints of no known format are refused with what is known") {
  const Status none = ReadStatus({{"model_type", "llama"}});
  CHECK(none.kind() == ErrorKind::kUnsupported);
  CHECK(none.ToString() ==
        "config.json: the checkpoint is not quantized: no quantization_config. Quantize it first, "
        "or name the folder that holds the config.json of the quantized model");

  const Status gptq = ReadStatus({{"quantization_config", {{"quant_method", "GPTQ"}}}});
  CHECK(gptq.kind() == ErrorKind::kUnsupported);
  CHECK(gptq.what() == "gptq checkpoints are not read");
  CHECK(gptq.found() == "quant_method \"gptq\"");
  CHECK(gptq.expected() == "compressed-tensors");

  const Status packed = ReadStatus({{"quantization_config", {{"quant_method", "prepack"}}}});
  CHECK(packed.kind() == ErrorKind::kUnsupported);
  CHECK(packed.ToString() ==
        "config.json: quantization_config: the folder is already packed. Convert the source "
        "checkpoint that it was made from");

  const Status unnamed = ReadStatus({{"quantization_config", {{"bits", 4}}}});
  CHECK(unnamed.kind() == ErrorKind::kUnsupported);
  CHECK_THAT(unnamed.ToString(), Catch::Contains("quant_method is missing"));

  const Status list = ReadStatus({{"quantization_config", Json::array()}});
  CHECK(list.kind() == ErrorKind::kMalformed);
  const Status number = ReadStatus({{"quantization_config", {{"quant_method", 4}}}});
  CHECK(number.kind() == ErrorKind::kMalformed);
}

TEST_CASE("The declaration is found where the loaders look for it, in their order") {
  const auto find = [](const Json& config) {
    const Result<QuantizationConfig> found = FindQuantizationConfig(config);
    REQUIRE(found.ok());
    return found->where + " " + found->method;
  };
  const Json ct = {{"quant_method", "compressed_tensors"}};
  const Json awq = {{"quant_method", "awq"}};
  CHECK(find({{"quantization_config", ct}, {"compression_config", awq}}) ==
        "config.json: quantization_config compressed-tensors");
  CHECK(find({{"compression_config", awq}, {"text_config", {{"quantization_config", ct}}}}) ==
        "config.json: text_config.quantization_config compressed-tensors");
  CHECK(find({{"quantization_config", nullptr}, {"compression_config", ct}}) ==
        "config.json: compression_config compressed-tensors");
  CHECK(find({{"compression_config", {{"config_groups", Json::object()}}}}) ==
        "config.json: compression_config compressed-tensors");
  CHECK(find({{"quantization_config", {{"format", "x"}, {"quantization_config", ct}}}}) ==
        "config.json: quantization_config.quantization_config compressed-tensors");
}

}  // namespace
}  // namespace prepack
