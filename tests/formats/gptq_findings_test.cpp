// What is odd about a GPTQ checkpoint, but does not keep it from being read.

#include <string>
#include <vector>

#include "catch.h"
#include "formats/defects.h"
#include "formats/gptq_example.h"

namespace prepack {
namespace {

using testing::FindingsOf;
using testing::GptqConfigOf;
using testing::GptqExample;
using testing::HasFinding;
using testing::Hex;
using testing::kGptqModule;
using testing::MakeGptq;
using testing::SmallGptq;
using testing::TestCheckpoint;
using testing::TestTensor;

struct Case {
  std::string name;
  void (*change)(TestCheckpoint& stored);
  std::string id;
  std::string where;
  std::string message;
};

void AddPlain(TestCheckpoint& stored, const std::string& module) {
  stored.tensors.push_back({module + ".weight", "F16", {1, 2}, Hex("00 00 00 00")});
}

TEST_CASE("A sound GPTQ checkpoint has no findings") {
  CHECK(FindingsOf(SmallGptq()).empty());
}

TEST_CASE("What is odd about a GPTQ checkpoint, but readable, is a finding") {
  using T = TestCheckpoint&;
  const std::string config = "config.json: quantization_config";
  const std::vector<Case> cases = {
      {"no bits", [](T t) { GptqConfigOf(t).erase("bits"); }, "config-missing-default",
       config + ".bits", "bits is missing; 4 was taken"},
      {"no sym", [](T t) { GptqConfigOf(t).erase("sym"); }, "config-missing-default",
       config + ".sym", "sym is missing; true was taken"},
      {"an index that was never set",
       [](T t) { t.At(kGptqModule + ".g_idx").bytes.assign(128, std::byte{0}); },
       "gptq-order-unset", kGptqModule, "g_idx was never filled in: natural order"},
      {"act-order with an index that was never set",
       [](T t) {
         t.At(kGptqModule + ".g_idx").bytes.assign(128, std::byte{0});
         GptqConfigOf(t)["desc_act"] = true;
       },
       "order-missing", kGptqModule, "g_idx was never filled in: natural order"},
      {"act-order without an index",
       [](T t) {
         t.Remove(kGptqModule + ".g_idx");
         GptqConfigOf(t)["desc_act"] = true;
       },
       "order-missing", kGptqModule, "desc_act is true, but g_idx is missing"},
      {"act-order in natural order", [](T t) { GptqConfigOf(t)["desc_act"] = true; },
       "order-unneeded", kGptqModule, "desc_act is true, but g_idx keeps the natural order"},
      {"zero points of the other version",
       [](T t) { GptqConfigOf(t)["checkpoint_format"] = "gptq_v2"; }, "gptq-zeros-other-version",
       kGptqModule, "declared z (v2), but 7 is stored, as z - 1 (v1) does"},
      {"a rule that excludes a quantized module",
       [](T t) {
         GptqConfigOf(t)["dynamic"] = {{"-:.*up_proj", Json::object()}};
       },
       "module-ignored-but-quantized", kGptqModule, "dynamic excludes it with \"-:.*up_proj\""},
      {"a list of blocks without a quantized module",
       [](T t) { GptqConfigOf(t)["modules_in_block_to_quantize"] = {{"mlp.down_proj"}}; },
       "module-ignored-but-quantized", kGptqModule,
       "modules_in_block_to_quantize does not name it"},
      {"a rule that matches nothing",
       [](T t) {
         GptqConfigOf(t)["dynamic"] = {{"-:vision.*", Json::object()}};
       },
       "config-pattern-unmatched", config + ".dynamic",
       "1 of 1 entries match no module of the checkpoint: \"-:vision.*\""},
      {"a plain layer", [](T t) { AddPlain(t, "model.layers.0.mlp.down_proj"); },
       "module-targeted-but-plain", "model.layers.0.mlp.down_proj",
       "the config includes the module, but it is not quantized"},
      {"a head that is not quantized",
       [](T t) {
         AddPlain(t, "lm_head");
         GptqConfigOf(t)["lm_head"] = true;
       },
       "module-targeted-but-plain", "lm_head",
       "lm_head is true, but the output head is not quantized"},
      {"an unknown tensor",
       [](T t) {
         t.tensors.push_back({kGptqModule + ".smooth", "F16", {1}, Hex("00 3c")});
       },
       "tensor-unknown", kGptqModule + ".smooth", "unknown tensor of a quantized module"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    TestCheckpoint stored = SmallGptq();
    c.change(stored);
    const std::vector<Finding> findings = FindingsOf(stored);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].id == c.id);
    CHECK(findings[0].where == c.where);
    CHECK_THAT(findings[0].message, Catch::StartsWith(c.message));
  }
}

TEST_CASE("An index that scatters the groups wins over desc_act") {
  GptqExample x;
  x.Randomize(7, 1);
  x.Shuffle(3);
  TestCheckpoint stored = MakeGptq(x);
  std::vector<Finding> findings = FindingsOf(stored);
  REQUIRE(findings.size() == 2);
  CHECK(HasFinding(findings, "order-present", "the groups lie over reordered input channels"));
  CHECK(HasFinding(findings, "order-undeclared", "desc_act is false, but g_idx scatters"));
  GptqConfigOf(stored)["desc_act"] = true;
  findings = FindingsOf(stored);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "order-present");
}

TEST_CASE("Zero points that are padded to 32 channels are told") {
  GptqExample x;
  x.n = 24;
  x.Randomize(7, 1);
  TestCheckpoint stored = MakeGptq(x);
  TestTensor& zeros = stored.At(kGptqModule + ".qzeros");
  REQUIRE(zeros.shape == std::vector<uint64_t>{2, 3});
  zeros.shape = {2, 4};
  zeros.bytes.insert(zeros.bytes.begin() + 12, 4, std::byte{0});
  zeros.bytes.insert(zeros.bytes.end(), 4, std::byte{0});
  const std::vector<Finding> findings = FindingsOf(stored);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "zero-point-padded");
  CHECK(findings[0].message == "qzeros has 4 words per group for N = 24; 1 are ignored");
}

}  // namespace
}  // namespace prepack
