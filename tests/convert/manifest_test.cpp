#include "prepack/packed/manifest.h"

#include <fmt/format.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "prepack/base/hash.h"
#include "prepack/layouts/fingerprint.h"
#include "prepack/packed/scheme_json.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

Manifest SmallManifest() {
  Manifest manifest;
  manifest.prepack_version = "0.1.0";
  manifest.target = "vllm-cpu";
  manifest.run = {.tool = "0.1.0", .source = "s", .options = "--target vllm-cpu", .plan = "p"};
  manifest.source_format = "compressed-tensors";
  manifest.source_fingerprint = std::string(32, 'a');
  manifest.source_path = "../source";
  manifest.source_quantization_config = {{"quant_method", "compressed-tensors"}};
  manifest.layouts["vllm-cpu/wna16"] = {1, std::string(32, 'b')};
  ModuleRecord module;
  module.layout = "vllm-cpu/wna16";
  module.scheme = {.granularity = Granularity::kGroup, .group_size = 32, .symmetric = true};
  module.n = 32;
  module.k = 64;
  module.scale_rounding = "none";
  module.source_xxh3_128 = std::string(32, 'c');
  module.parts["weight"] = {.tensor = "a.b.weight",
                            .file = "model.safetensors",
                            .offset = 4096,
                            .dtype = DType::kI32,
                            .shape = {2, 128},
                            .xxh3_128 = std::string(32, 'd')};
  manifest.modules["a.b"] = module;
  manifest.kept["a.c"] = "N = 7 is not a multiple of 32";
  manifest.tensors.push_back({.tensor = "norm",
                              .file = "model.safetensors",
                              .offset = 5120,
                              .dtype = DType::kBF16,
                              .shape = {8},
                              .xxh3_128 = std::string(32, 'e')});
  manifest.files["model.safetensors"] = {5136, std::string(32, 'f')};
  return manifest;
}

Result<Manifest> Read(const std::string& text) {
  TempFolder temp;
  std::ofstream(temp / "prepack.json") << text;  // not flushed to the disk: thousands of these
  return ReadManifest(temp.path());
}

// The text of a manifest after `edit`, with a hash that fits.
std::string Edited(const std::function<void(Json&)>& edit) {
  Json json = Json::parse(ManifestText(SmallManifest()));
  json.erase("manifest_xxh3_128");
  edit(json);
  std::string text = json.dump(2);
  text.resize(text.size() - 2);
  return text + std::string(kManifestHashPrefix) + Xxh3Hex(text) + "\"\n}\n";
}

TEST_CASE("a manifest comes back as it was written") {
  const std::string text = ManifestText(SmallManifest());
  const Result<Manifest> read = Read(text);
  REQUIRE(read.ok());
  CHECK(ManifestText(*read) == text);
  CHECK(read->modules.at("a.b").scheme == SmallManifest().modules.at("a.b").scheme);
  CHECK(read->modules.at("a.b").parts.at("weight").offset == 4096);
  CHECK(read->tensors.at(0).shape == std::vector<uint64_t>{8});
  CHECK(read->source_path == "../source");
  CHECK(read->run == SmallManifest().run);
  CHECK(Read(Edited([](Json&) {})).ok());  // the builder of the cases below is sound
  Json document = Json::parse(text);
  document.erase("manifest_xxh3_128");
  Json same = Json::parse(Edited([](Json&) {}));
  same.erase("manifest_xxh3_128");
  CHECK(same == document);
  // A line for each module and tensor.
  CHECK(text.find("\n    \"a.b\": " + document["modules"]["a.b"].dump() + "\n") != text.npos);
  CHECK(text.find("\n    " + document["tensors"][0].dump() + "\n") != text.npos);
}

TEST_CASE("the members of a stack are those that were given, whatever is kept of them") {
  const auto stack_of = [](size_t experts) {
    std::vector<FusedMember> members;
    for (size_t i = 0; i < experts; ++i) {
      members.push_back({fmt::format("layers.0.experts.{}.w1", i), 24});
      members.push_back({fmt::format("layers.0.experts.{}.w3.0.x", i), 8});
    }
    return members;
  };
  std::vector<FusedMember> members = stack_of(12);
  uint64_t experts = 12;
  SECTION("numbered") {}
  SECTION("one expert") {
    members = stack_of(1);
    experts = 1;
  }
  SECTION("a number twice") {
    members[22].module = members[20].module;
  }
  SECTION("another name at the end") {
    members.back().module = "layers.0.experts.11.w4";
  }
  SECTION("other outputs") {
    ++members[5].n;
  }
  SECTION("without numbers") {
    for (FusedMember& member : members) member.module = "w";
  }
  SECTION("no experts") {
    experts = 0;
  }
  SECTION("experts that do not divide them") {
    experts = 7;
  }
  const FusedMembers kept(members, experts);
  CHECK(kept.size() == members.size());
  CHECK(kept.All() == members);
  CHECK(kept == FusedMembers(members));
  for (size_t i = 0; i < members.size(); ++i) CHECK(kept[i] == members[i]);
  CHECK(FusedMembers().empty());
}

TEST_CASE("the channels of a member follow those of the members before it") {
  const FusedMembers members({{"e.0.a", 2}, {"e.0.b", 3}, {"e.1.a", 2}, {"e.1.b", 3}}, 2);
  const auto channels = members.ChannelsOf("e.1.b");
  REQUIRE(channels);
  CHECK(channels->first == 7);
  CHECK(channels->n == 3);
  CHECK_FALSE(members.ChannelsOf("e.2.a"));
}

TEST_CASE("a manifest says what a fused module was made of") {
  Manifest manifest = SmallManifest();
  manifest.modules.at("a.b").fused = {{"a.q", 24}, {"a.k", 8}};
  const Result<Manifest> read = Read(ManifestText(manifest));
  REQUIRE(read.ok());
  CHECK(read->modules.at("a.b").fused == FusedMembers{{"a.q", 24}, {"a.k", 8}});
  CHECK(ManifestText(*read) == ManifestText(manifest));
}

// A module like that of SmallManifest, whose tensors have names of their own.
ModuleRecord SecondModule() {
  ModuleRecord module = SmallManifest().modules.at("a.b");
  for (auto& [part, tensor] : module.parts) tensor.tensor = "a.c." + part;
  return module;
}

// Makes what a manifest lists: the parts of SmallManifest, twice as many modules.
class MadeRecords : public ManifestRecords {
 public:
  void VisitModules(const ModuleVisitor& visit) const override {
    visit("a.b", SmallManifest().modules.at("a.b"));
    visit("a.c", SecondModule());
  }
  void VisitTensors(const TensorVisitor& visit) const override {
    visit(SmallManifest().tensors.at(0));
  }
};

TEST_CASE("what a manifest lists is made when it is written") {
  const TempFolder temp;
  Manifest manifest = SmallManifest();
  manifest.modules.clear();
  manifest.tensors.clear();
  const Status status = WriteManifest(temp / "prepack.json", manifest, MadeRecords());
  INFO(status.ToString());
  REQUIRE(status.ok());
  const Result<Manifest> read = ReadManifest(temp.path());
  REQUIRE(read.ok());
  Manifest expected = SmallManifest();
  expected.modules["a.c"] = SecondModule();
  CHECK(ManifestText(*read) == ManifestText(expected));
}

TEST_CASE("a manifest is not written over another file") {
  const TempFolder temp;
  std::ofstream(temp / "prepack.json") << "{}";
  const Status status = WriteManifest(temp / "prepack.json", SmallManifest(), MadeRecords());
  REQUIRE_FALSE(status.ok());
  CHECK_THAT(status.ToString(), Catch::Contains("prepack.json"));
}

TEST_CASE("a manifest need not know where its source lay") {
  const Result<Manifest> read = Read(Edited([](Json& json) { json["source"].erase("path"); }));
  REQUIRE(read.ok());
  CHECK(read->source_path.empty());
  CHECK(ManifestText(*read).find("\"path\"") == std::string::npos);
  CHECK(Read(Edited([](Json& json) { json["source"]["path"] = std::string(4096, 'a'); })).ok());
}

TEST_CASE("schemes of every kind and memory descriptors come back from a manifest") {
  for (const Scheme& scheme : ProbeSchemes(32, 64, 32)) {
    Manifest manifest = SmallManifest();
    ModuleRecord& module = manifest.modules["a.b"];
    module.scheme = scheme;
    module.rounded_scales = 7;
    module.weights_desc = Ba16a64b4aDesc(64, 32);
    module.weights_desc->s8s8_compensation = true;
    manifest.exact_scales = true;
    manifest.dequantized["a.d"] = "because";
    const Result<Manifest> read = Read(ManifestText(manifest));
    INFO(DescribeScheme(scheme) << ": " << read.status().ToString());
    REQUIRE(read.ok());
    const ModuleRecord& found = read->modules.at("a.b");
    CHECK(found.scheme == scheme);
    CHECK(found.rounded_scales == 7);
    CHECK(found.weights_desc == module.weights_desc);
    CHECK(read->exact_scales);
    CHECK(read->dequantized.at("a.d") == "because");
  }
}

TEST_CASE("every changed byte of a manifest is noticed") {
  const std::string text = ManifestText(SmallManifest());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    INFO("byte " << i);
    REQUIRE_FALSE(Read(damaged).ok());
  }
  for (size_t length = 0; length < text.size(); length += 7) {
    REQUIRE_FALSE(Read(text.substr(0, length)).ok());
  }
}

TEST_CASE("manifests that lie are refused with the reason") {
  struct Case {
    const char* text;
    ErrorKind kind;
    std::function<void(Json&)> edit;
  };
  const auto module = [](Json& json) -> Json& { return json["modules"]["a.b"]; };
  const auto members = [](std::initializer_list<uint64_t> outputs) {
    Json list = Json::array();
    for (const uint64_t n : outputs) list.push_back({{"module", "a.q"}, {"outputs", n}});
    return list;
  };
  const auto part = [&](Json& json) -> Json& { return module(json)["parts"]["weight"]; };
  const auto numbers = [&](Json& json) -> Json& { return module(json)["numbers"]; };
  const auto descriptor = [&](Json& json) -> Json& {
    return module(json)["memory_descriptor"] = BlockedDescJson(Ba16a64b4aDesc(64, 32));
  };
  const std::vector<Case> cases = {
      {"unknown manifest version", ErrorKind::kUnsupported,
       [](Json& json) { json["manifest_version"] = 3; }},
      {"field \"manifest_version\" is missing", ErrorKind::kMalformed,
       [](Json& json) { json.erase("manifest_version"); }},
      {"the name of the form contradicts its other fields (found ab, expected BA16a64b4a)",
       ErrorKind::kMalformed, [&](Json& json) { descriptor(json)["name"] = "ab"; }},
      {"it is listed twice", ErrorKind::kMalformed,
       [&](Json& json) { json["tensors"].push_back(part(json)); }},
      {"field \"target\" has the wrong type", ErrorKind::kMalformed,
       [](Json& json) { json["target"] = 5; }},
      {"field \"run\" has the wrong type", ErrorKind::kMalformed,
       [](Json& json) { json["run"] = "x"; }},
      {"run: field \"plan\" is missing", ErrorKind::kMalformed,
       [](Json& json) { json["run"].erase("plan"); }},
      {"field \"path\" has the wrong type", ErrorKind::kMalformed,
       [](Json& json) { json["source"]["path"] = 5; }},
      {"field \"path\" of the source is not a relative path", ErrorKind::kMalformed,
       [](Json& json) { json["source"]["path"] = ""; }},
      {"is not a relative path (found /etc, expected 1 to 4096 bytes", ErrorKind::kMalformed,
       [](Json& json) { json["source"]["path"] = "/etc"; }},
      {"field \"path\" of the source is not a relative path", ErrorKind::kMalformed,
       [](Json& json) { json["source"]["path"] = std::string(4097, 'a'); }},
      {"is not a relative path (found a\\x00b", ErrorKind::kMalformed,
       [](Json& json) { json["source"]["path"] = std::string("a\0b", 3); }},
      {"field \"modules\" is missing", ErrorKind::kMalformed,
       [](Json& json) { json.erase("modules"); }},
      {"\"layouts\" does not list", ErrorKind::kMalformed,
       [&](Json& json) { module(json)["layout"] = "vllm-cpu/other"; }},
      {"field \"fused\" has the wrong type", ErrorKind::kMalformed,
       [&](Json& json) { module(json)["fused"] = "a.q"; }},
      {"field \"module\" is missing", ErrorKind::kMalformed,
       [&](Json& json) {
         module(json)["fused"] = Json::array({{{"outputs", 32}}});
       }},
      {"field \"outputs\" is missing", ErrorKind::kMalformed,
       [&](Json& json) {
         module(json)["fused"] = Json::array({{{"module", "a.q"}}});
       }},
      {"\"fused\" does not list several modules with all outputs (found 1 with 32 outputs",
       ErrorKind::kMalformed, [&](Json& json) { module(json)["fused"] = members({32}); }},
      {"\"fused\" does not list several modules with all outputs (found 2 with 31 outputs",
       ErrorKind::kMalformed,
       [&](Json& json) {
         module(json)["fused"] = members({30, 1});
       }},
      {"the outputs do not add up to those of the module", ErrorKind::kMalformed,
       [&](Json& json) {
         module(json)["fused"] = members({30, 3});
       }},
      {"the outputs do not add up to those of the module", ErrorKind::kMalformed,
       [&](Json& json) {
         module(json)["fused"] = members({32, 0});
       }},
      {"the outputs do not add up to those of the module", ErrorKind::kMalformed,
       [&](Json& json) {
         module(json)["fused"] = members({2, UINT64_MAX});
       }},
      {"field \"shape\" is not [N, K]", ErrorKind::kMalformed,
       [&](Json& json) { module(json)["shape"] = {32}; }},
      {"field \"shape\" is not [N, K]", ErrorKind::kMalformed,
       [&](Json& json) {
         module(json)["shape"] = {32, 0};
       }},
      {"out of range", ErrorKind::kMalformed,
       [&](Json& json) {
         module(json)["shape"] = {32, 9223372036854775840U};
       }},
      {"the scheme and its \"numbers\" contradict each other", ErrorKind::kMalformed,
       [&](Json& json) { module(json)["group_size"] = 48; }},
      {"the scheme and its \"numbers\" contradict each other", ErrorKind::kMalformed,
       [&](Json& json) { module(json)["scheme"] = "w5a16"; }},
      {"the scheme and its \"numbers\" contradict each other", ErrorKind::kMalformed,
       [&](Json& json) { module(json)["symmetric"] = false; }},
      {"field \"group_size\" is out of range", ErrorKind::kMalformed,
       [&](Json& json) { numbers(json)["group_size"] = 0; }},
      {"field \"group_size\" is out of range", ErrorKind::kMalformed,
       [&](Json& json) { numbers(json)["group_size"] = 1ULL << 32; }},
      {"the name of the scheme contradicts its numbers (found w8a16", ErrorKind::kMalformed,
       [&](Json& json) { numbers(json)["name"] = "w8a16"; }},
      {"field \"name\" is missing", ErrorKind::kMalformed,
       [&](Json& json) { numbers(json).erase("name"); }},
      {"layout vllm-cpu/wna16: the version is out of range", ErrorKind::kMalformed,
       [](Json& json) { json["layouts"]["vllm-cpu/wna16"]["version"] = 1ULL << 32; }},
      {"field \"a.c\" has the wrong type (found number, expected string)", ErrorKind::kMalformed,
       [](Json& json) { json["kept"]["a.c"] = 5; }},
      {"field \"scale_rows\" is out of range", ErrorKind::kMalformed,
       [&](Json& json) { numbers(json)["scale_rows"] = 0; }},
      {"field \"bits\" is out of range", ErrorKind::kMalformed,
       [&](Json& json) { numbers(json)["bits"] = 17; }},
      {"the numbers contradict each other", ErrorKind::kMalformed,
       [&](Json& json) { numbers(json)["bits"] = 5; }},
      {"the numbers contradict each other", ErrorKind::kMalformed,
       [&](Json& json) { numbers(json)["granularity"] = "tensor"; }},
      {"the numbers contradict each other", ErrorKind::kMalformed,
       [&](Json& json) { numbers(json)["scale_rows"] = 2; }},
      {"the numbers contradict each other", ErrorKind::kMalformed,
       [&](Json& json) { numbers(json)["code"] = "bf16"; }},
      {"does not know the code of the scheme", ErrorKind::kUnsupported,
       [&](Json& json) { numbers(json)["code"] = "u5"; }},
      {"does not know the granularity of the scheme", ErrorKind::kUnsupported,
       [&](Json& json) { numbers(json)["granularity"] = "row"; }},
      {"field \"activations\" is missing", ErrorKind::kMalformed,
       [&](Json& json) { numbers(json).erase("activations"); }},
      {"does not know the type of the scheme", ErrorKind::kUnsupported,
       [&](Json& json) {
         numbers(json)["activations"] = {{"type", "posit"}};
       }},
      {"field \"accepted\" names a finding that cannot be accepted", ErrorKind::kMalformed,
       [](Json& json) { json["accepted"] = {"scale-not-finite"}; }},
      {"field \"accepted\" names a finding that cannot be accepted", ErrorKind::kMalformed,
       [](Json& json) { json["accepted"] = {"scale-zero=("}; }},
      {"not a model of the hub", ErrorKind::kMalformed,
       [](Json& json) {
         json["source"]["hub"] = {{"name", "../../x"}, {"commit", std::string(40, 'a')}};
       }},
      {"not a model of the hub", ErrorKind::kMalformed,
       [](Json& json) {
         json["source"]["hub"] = {{"name", "a/b@c"}, {"commit", std::string(40, 'a')}};
       }},
      {"not a model of the hub", ErrorKind::kMalformed,
       [](Json& json) {
         json["source"]["hub"] = {{"name", "a/b"}, {"commit", "main"}};
       }},
      {"field \"commit\" is missing", ErrorKind::kMalformed,
       [](Json& json) {
         json["source"]["hub"] = {{"name", "a/b"}};
       }},
      {"field \"accepted\" has the wrong type", ErrorKind::kMalformed,
       [](Json& json) { json["accepted"] = "scale-zero"; }},
      {"field \"scales\" is unknown", ErrorKind::kMalformed,
       [](Json& json) { json["scales"] = "rough"; }},
      {"field \"dequantized\" is missing", ErrorKind::kMalformed,
       [](Json& json) { json.erase("dequantized"); }},
      {"field \"dims\" is not two numbers", ErrorKind::kMalformed,
       [&](Json& json) { descriptor(json)["dims"] = {64}; }},
      {"memory descriptor: field \"dims\" is not usable", ErrorKind::kMalformed,
       [&](Json& json) {
         descriptor(json)["dims"] = {64, 64};
       }},
      {"field \"inner_blocks\" is not pairs of numbers", ErrorKind::kMalformed,
       [&](Json& json) { descriptor(json)["inner_blocks"] = {4}; }},
      {"field \"inner_blocks\" has too many blocks (found 9, expected at most 8)",
       ErrorKind::kMalformed,
       [&](Json& json) {
         descriptor(json)["inner_blocks"] = Json(9, Json::array({0, 1}));
       }},
      {"memory descriptor: field \"inner_blocks\" is not usable", ErrorKind::kMalformed,
       [&](Json& json) {
         descriptor(json)["inner_blocks"] = Json::array({{0, 0}});
       }},
      {"memory descriptor: field \"strides\" is not usable", ErrorKind::kMalformed,
       [&](Json& json) {
         descriptor(json)["strides"] = {1, 1};
       }},
      {"not a known dtype", ErrorKind::kMalformed,
       [&](Json& json) { part(json)["dtype"] = "I33"; }},
      {"integers of 0 or more", ErrorKind::kMalformed,
       [&](Json& json) {
         part(json)["shape"] = {-2, 128};
       }},
      {"the size of the tensor overflows", ErrorKind::kMalformed,
       [&](Json& json) {
         part(json)["shape"] = {1ULL << 62, 1ULL << 62};
       }},
      {"do not lie within a file", ErrorKind::kMalformed,
       [&](Json& json) { part(json)["offset"] = 4200; }},
      {"the size of the tensor overflows", ErrorKind::kMalformed,
       [&](Json& json) { part(json)["offset"] = UINT64_MAX; }},
      {"do not lie within a file", ErrorKind::kMalformed,
       [&](Json& json) { part(json)["file"] = "other.safetensors"; }},
      {"not a plain file name", ErrorKind::kMalformed,
       [&](Json& json) { part(json)["file"] = "../model.safetensors"; }},
      {"not a plain file name", ErrorKind::kMalformed,
       [](Json& json) {
         json["files"]["/etc/passwd"] = {{"bytes", 1}, {"xxh3_128", ""}};
       }},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    const Result<Manifest> read = Read(Edited(c.edit));
    REQUIRE_FALSE(read.ok());
    CHECK(read.status().kind() == c.kind);
    CHECK_THAT(read.status().ToString(), Catch::Contains(c.text));
    CHECK_THAT(read.status().ToString(), Catch::Contains("prepack.json"));
  }
}

TEST_CASE("a folder without a manifest is not a packed folder") {
  TempFolder temp;
  const Result<Manifest> read = ReadManifest(temp.path());
  REQUIRE_FALSE(read.ok());
  CHECK(read.status().kind() == ErrorKind::kUsage);
}

}  // namespace
}  // namespace prepack::testing
