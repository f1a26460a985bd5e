// The values of two config.json, compared by what stands in the files.

#include "prepack/verify/second/tensors.h"

#include "catch.h"

namespace prepack::testing {
namespace {

TEST_CASE("configs that differ in space and in their declarations only are the same") {
  const std::string source =
      R"({"a": -0, "text_config": {"quantization_config": {"bits": 4}, "n": [1e5, {}]},
                                 "b": "x\"}{,", "compression_config": {"c": []}})";
  CHECK(WhyConfigDiffers(source, source).empty());
  CHECK(WhyConfigDiffers(source, R"({
  "a": -0,
  "text_config": {"n": [1e5, { }]},
  "b": "x\"}{,",
  "quantization_config": {"quant_method": "prepack", "exceptions": {}}
})")
            .empty());
  CHECK(WhyConfigDiffers("{}", R"({"quantization_config": {}})").empty());
  CHECK(WhyConfigDiffers(R"({"o": {"quantization_config": {"x": 1}}})", R"({"o": {}})").empty());
}

TEST_CASE("a value that is not kept to the character is named") {
  const std::string source = R"({"n": 1000000000000000019884624838656, "o": {"p": [1, 2]}})";
  const auto why = [&](const std::string& packed) { return WhyConfigDiffers(source, packed); };
  CHECK(why(R"({"n": 1e+30, "o": {"p": [1, 2]}})") ==
        "found \"n\": 1e+30, expected \"n\": 1000000000000000019884624838656");
  CHECK(why(R"({"n": 1000000000000000019884624838656, "o": {"p": [2, 1]}})") ==
        "found \"o\"/\"p\"/[]: 2, expected \"o\"/\"p\"/[]: 1");
  CHECK(why(R"({"o": {"p": [1, 2]}, "n": 1000000000000000019884624838656})").starts_with("found"));
  CHECK(why(R"({"n": 1000000000000000019884624838656, "o": {"p": [1]}})") ==
        "found nothing, expected \"o\"/\"p\"/[]: 2");
  CHECK(why(R"({"n": 1000000000000000019884624838656, "o": {"p": [1, 2]}, "q": null})") ==
        "found \"q\": null, expected nothing");
}

}  // namespace
}  // namespace prepack::testing
