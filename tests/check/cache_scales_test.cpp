// The scales of the key and value caches, in the names of all writers.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "check/check_run.h"
#include "prepack/check/model_checks.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

const Json kDeclared = {
    {"quant_method", "compressed-tensors"},
    {"kv_cache_scheme", {{"num_bits", 8}, {"type", "float"}, {"dynamic", false}}}};

// A decoder of which only the projections of keys and values are there, and scales of its caches.
class CachedDecoder {
 public:
  explicit CachedDecoder(int layers, Json quantization = kDeclared) {
    stored_.config = {{"quantization_config", std::move(quantization)}};
    for (int layer = 0; layer < layers; ++layer) {
      for (const char* name : {"k_proj.weight", "v_proj.weight"}) Add(layer, name, "0000 803f");
    }
  }

  // `bytes` of an F32.
  CachedDecoder& Add(int layer, const std::string& name, const char* bytes = "0000 803f",
                     const std::vector<uint64_t>& shape = {1}) {
    stored_.tensors.push_back(
        {fmt::format("model.layers.{}.self_attn.{}", layer, name), "F32", shape, Hex(bytes)});
    return *this;
  }

  // "id where: message" of all findings.
  std::string Lines(bool read_data = true) const {
    const TempFolder folder;
    stored_.Write(folder.path());
    const Checkpoint checkpoint = Value(Checkpoint::Open(folder.path()));
    std::vector<Finding> findings;
    RequireOk(CheckCacheScales(checkpoint, read_data, findings));
    std::string lines;
    for (const Finding& finding : findings) {
      lines += fmt::format("{} {}: {}\n", finding.id, finding.where, finding.message);
    }
    return lines;
  }

 private:
  TestCheckpoint stored_;
};

TEST_CASE("scales of caches are sound in the names of all writers") {
  const std::vector<std::vector<std::string>> names = {
      {"k_scale", "v_scale"},
      {"attn.k_scale", "attn.v_scale"},
      {"k_proj.k_scale", "v_proj.v_scale"},
      {"k_proj.output_scale", "v_proj.output_scale"},
      {"kv_scale"},
  };
  for (const auto& writer : names) {
    CAPTURE(writer);
    CachedDecoder decoder(2);
    for (const int layer : {0, 1}) {
      for (const std::string& name : writer) decoder.Add(layer, name);
    }
    CHECK(decoder.Lines().empty());
  }
}

TEST_CASE("a projection of keys and values in one has one scale for both") {
  const std::string projection =
      GENERATE("qkv_proj", "kv_proj", "c_attn", "query_key_value", "Wqkv", "wkv");
  const Json config = GENERATE_COPY(
      Json{{"quant_method", "quark"}, {"export", {{"kv_cache_group", {"*" + projection}}}}},
      Json{{"quant_method", "quark"},
           {"layer_quant_config",
            {{"*" + projection, {{"output_tensors", {{"dtype", "fp8_e4m3"}}}}}}}});
  CachedDecoder decoder(0, config);
  for (const int layer : {0, 1}) decoder.Add(layer, projection + ".weight");
  CHECK(decoder.Lines().find("cache-scale-missing config.json: quantization_config.") == 0);
  decoder.Add(0, projection + ".output_scale");
  CHECK(decoder.Lines().find("no scale for the cache of keys in 1 of 2 layers: 1\n") !=
        std::string::npos);
  decoder.Add(1, projection + ".output_scale", "0000 0000");
  CHECK(decoder.Lines() == "cache-scale-bad model.layers.1.self_attn." + projection +
                               ".output_scale: the scale of a cache is 0, expected a positive "
                               "number\n");
}

TEST_CASE("scales of a latent cache are judged, but need not be there") {
  CachedDecoder decoder(
      0, {{"quant_method", "quark"}, {"export", {{"kv_cache_group", {"*kv_b_proj"}}}}});
  for (const int layer : {0, 1}) decoder.Add(layer, "kv_b_proj.weight");
  CHECK(decoder.Lines().empty());
  decoder.Add(0, "kv_b_proj.output_scale", "0000 80bf");
  CHECK(decoder.Lines() ==
        "cache-scale-bad model.layers.0.self_attn.kv_b_proj.output_scale: the scale of a cache is "
        "-1, expected a positive number\n");
}

TEST_CASE("a scale of a cache that cannot be right is an error") {
  const auto [bytes, shown] = GENERATE(table<const char*, const char*>({
      {"0000 0000", "0"},
      {"0000 c07f", "nan"},
      {"0000 807f", "inf"},
      {"0000 80bf", "-1"},
  }));
  CachedDecoder decoder(1);
  decoder.Add(0, "k_scale", bytes).Add(0, "v_scale");
  CHECK(decoder.Lines() ==
        fmt::format("cache-scale-bad model.layers.0.self_attn.k_scale: the scale of a cache is {}, "
                    "expected a positive number\n",
                    shown));
  CHECK(decoder.Lines(false).empty());
}

TEST_CASE("of scales per head, the bad one is named") {
  CachedDecoder decoder(1);
  decoder.Add(0, "k_scale", "0000 803f 0000 0000", {2, 1, 1}).Add(0, "v_scale");
  CHECK(decoder.Lines() ==
        "cache-scale-bad model.layers.0.self_attn.k_scale: the scale of head 1 of a cache is 0, "
        "expected a positive number\n");
}

TEST_CASE("a tensor with the name of a scale may be something else") {
  CachedDecoder decoder(1);
  decoder.Add(0, "k_scale", "", {0}).Add(0, "v_scale");
  CHECK(decoder.Lines() ==
        "cache-scale-bad model.layers.0.self_attn.k_scale: not a scale of a cache (found F32 [0], "
        "expected a float for the layer or for each head)\n");
}

TEST_CASE("a scale is compared with those of the other layers") {
  CachedDecoder decoder(4);
  for (const int layer : {0, 1, 2}) decoder.Add(layer, "k_scale").Add(layer, "v_scale");
  SECTION("a thousand times as large") {
    decoder.Add(3, "k_scale", "0000 7a44").Add(3, "v_scale");  // 1000
    CHECK(
        decoder.Lines() ==
        "cache-scale-bad model.layers.3.self_attn.k_scale: the scale of a cache is 1e+03, but the "
        "median of its 4 peers is 1\n");
  }
  SECTION("a thousand times as large as it was, which was less than others are") {
    decoder.Add(3, "k_scale", "0000 7a43").Add(3, "v_scale");  // 250
    CHECK(decoder.Lines().starts_with("cache-scale-bad model.layers.3.self_attn.k_scale: "));
  }
  SECTION("a thousandth") {
    decoder.Add(3, "k_scale", "6f12 033a").Add(3, "v_scale");  // 0.0005
    CHECK(decoder.Lines().starts_with("cache-scale-bad model.layers.3.self_attn.k_scale: "));
  }
  SECTION("less than that is left alone") {
    decoder.Add(3, "k_scale", "0000 4743").Add(3, "v_scale");  // 199
    CHECK(decoder.Lines().empty());
  }
}

TEST_CASE("of scales per head, the one unlike those of the others is named") {
  CachedDecoder decoder(2);
  decoder.Add(0, "k_scale", "0000 803f 0000 803f", {2, 1, 1}).Add(0, "v_scale").Add(1, "v_scale");
  SECTION("a thousand times as large") {
    decoder.Add(1, "k_scale", "0000 7a44 0000 803f", {2, 1, 1});
    CHECK(decoder.Lines() ==
          "cache-scale-bad model.layers.1.self_attn.k_scale: the scale of head 0 of a cache is "
          "1e+03, but the median of its 4 peers is 1\n");
  }
  SECTION("a thousandth") {
    decoder.Add(1, "k_scale", "0000 803f 6f12 033a", {2, 1, 1});
    CHECK(decoder.Lines().starts_with(
        "cache-scale-bad model.layers.1.self_attn.k_scale: the scale of head 1 of a cache is 0.0"));
  }
  SECTION("all alike") {
    decoder.Add(1, "k_scale", "0000 803f 0000 803f", {2, 1, 1});
    CHECK(decoder.Lines().empty());
  }
}

TEST_CASE("the scale of what a layer rounds is none of a cache") {
  Json config = {{"quant_method", "compressed-tensors"},
                 {"config_groups", {{"group_0", {{"output_activations", {{"num_bits", 8}}}}}}}};
  const bool declared = GENERATE(false, true);
  if (declared) config["kv_cache_scheme"] = kDeclared["kv_cache_scheme"];
  CachedDecoder decoder(1, config);
  decoder.Add(0, "k_proj.output_scale", "0000 0000").Add(0, "v_proj.output_scale");
  CHECK(decoder.Lines().empty() == !declared);
  // Groups that are not as they should be are for the reader to refuse.
  config["config_groups"] =
      GENERATE(Json(1), Json{{"group_0", 1}}, Json{{"group_0", Json::object()}});
  CachedDecoder other(1, config);
  other.Add(0, "k_proj.output_scale", "0000 0000").Add(0, "v_proj.output_scale");
  CHECK_FALSE(other.Lines().empty());
}

TEST_CASE("layers without scales are named where others have them") {
  CachedDecoder decoder(3);
  decoder.Add(0, "k_scale").Add(0, "v_scale").Add(2, "k_scale").Add(2, "v_scale").Add(1, "v_scale");
  CHECK(decoder.Lines() ==
        "cache-scale-missing model.layers.1.self_attn: no scale for the cache of keys in 1 of 3 "
        "layers: 1\n");
}

TEST_CASE("the config and the scales must both be there") {
  SECTION("no scale at all") {
    CHECK(
        CachedDecoder(2).Lines() ==
        "cache-scale-missing config.json: quantization_config.kv_cache_scheme: the caches of keys "
        "and values are to be quantized, but no layer has a scale for them\n");
  }
  SECTION("scales that are computed at run time are not stored") {
    Json computed = kDeclared;
    computed["kv_cache_scheme"]["dynamic"] = true;
    CHECK(CachedDecoder(2, computed).Lines().empty());
  }
  SECTION("nothing declares them") {
    CachedDecoder decoder(1, {{"quant_method", "fp8"}});
    decoder.Add(0, "k_scale").Add(0, "v_scale");
    CHECK(decoder.Lines() ==
          "cache-undeclared model.layers.0.self_attn.k_scale: 2 scales for the caches of keys and "
          "values are stored, but the config does not say that they are quantized\n");
  }
  SECTION("in the words of ModelOpt and Quark, new and old") {
    const Json config = GENERATE(
        Json{{"quant_method", "modelopt"}, {"kv_cache_quant_algo", "FP8"}},
        Json{{"quant_method", "fp8"}, {"kv_cache_scheme", "static"}},
        Json{{"quant_method", "quark"}, {"export", {{"kv_cache_group", {"*k_proj", "*v_proj"}}}}},
        Json{{"quant_method", "quark"}, {"kv_cache_quant_config", {{"*k_proj", Json::object()}}}},
        Json{{"quant_method", "quark"},
             {"layer_quant_config", {{"*k_proj", {{"output_tensors", {{"dtype", "fp8_e4m3"}}}}}}}});
    CachedDecoder decoder(1, config);
    CHECK(decoder.Lines().find("cache-scale-missing config.json") == 0);
    decoder.Add(0, "k_scale").Add(0, "v_scale");
    CHECK(decoder.Lines().empty());
  }
}

}  // namespace
}  // namespace prepack::testing
