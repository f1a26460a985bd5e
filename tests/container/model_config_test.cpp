#include "prepack/container/model_config.h"

#include <nlohmann/json.hpp>

#include "catch.h"

namespace prepack::testing {
namespace {

TEST_CASE("the language model's config may be nested, under either name") {
  const Json plain = {{"hidden_size", 1}};
  CHECK(&LanguageConfig(plain) == &plain);
  for (const char* name : {"text_config", "llm_config"}) {
    const Json nested = {{"hidden_size", 1}, {name, {{"hidden_size", 2}}}};
    CHECK(LanguageConfig(nested)["hidden_size"] == 2);
  }
  const Json both = {{"llm_config", {{"hidden_size", 3}}}, {"text_config", {{"hidden_size", 2}}}};
  CHECK(LanguageConfig(both)["hidden_size"] == 2);
  const Json other = {{"text_config", "x"}};
  CHECK(&LanguageConfig(other) == &other);
}

TEST_CASE("the dtype of the activations is that of the whole, or of the language model") {
  CHECK(DTypeOfConfig({{"torch_dtype", "float16"}}) == DType::kF16);
  CHECK(DTypeOfConfig({{"dtype", "float32"}, {"torch_dtype", "float16"}}) == DType::kF32);
  CHECK(DTypeOfConfig({{"llm_config", {{"torch_dtype", "float16"}}}}) == DType::kF16);
  CHECK(DTypeOfConfig({{"dtype", "bfloat16"}, {"text_config", {{"dtype", "float16"}}}}) ==
        DType::kBF16);
  CHECK(DTypeOfConfig({{"dtype", "auto"}, {"text_config", {{"dtype", "float16"}}}}) == DType::kF16);
  CHECK_FALSE(DTypeOfConfig({{"dtype", 16}}).has_value());
  CHECK_FALSE(DTypeOfConfig(Json::object()).has_value());
}

}  // namespace
}  // namespace prepack::testing
