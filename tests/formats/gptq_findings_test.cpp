// What is odd about a GPTQ checkpoint, but does not keep it from being read, and the statistics
// that do.

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/defects.h"
#include "formats/gptq_example.h"
#include "prepack/formats/gptq/zeros.h"

namespace prepack::testing {
namespace {

TestTensor& PartOf(TestCheckpoint& checkpoint, const std::string& suffix) {
  return checkpoint.At(kGptqModule + "." + suffix);
}

Finding OnlyFinding(const TestCheckpoint& stored) {
  const std::vector<Finding> findings = FindingsOf(stored);
  REQUIRE(findings.size() == 1);
  return findings[0];
}

// The same index for every input channel.
void FillOrder(TestCheckpoint& stored, uint32_t index) {
  PartOf(stored, "g_idx").bytes = Words(std::vector<uint32_t>(32, index));
}

// The order in which the module of a checkpoint is read; empty: natural.
std::vector<uint32_t> OrderOf(const TestCheckpoint& stored) {
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  return *Value(opened.Module(kGptqModule).KOrder());
}

TEST_CASE("a sound GPTQ checkpoint has no findings") {
  CHECK(FindingsOf(SmallGptq()).empty());
}

TEST_CASE("what a GPTQ config leaves out is taken as its quantizer does, and reported") {
  TestCheckpoint bits = SmallGptq();
  GptqConfigOf(bits).erase("bits");
  Finding finding = OnlyFinding(bits);
  CHECK(finding.id == "config-missing-default");
  CHECK(finding.where == "config.json: quantization_config.bits");
  CHECK_THAT(finding.message, Catch::StartsWith("bits is missing; prepack used 4"));
  TestCheckpoint symmetric = SmallGptq();
  GptqConfigOf(symmetric).erase("sym");
  finding = OnlyFinding(symmetric);
  CHECK(finding.id == "config-missing-default");
  CHECK(finding.where == "config.json: quantization_config.sym");
  CHECK_THAT(finding.message, Catch::StartsWith("sym is missing; prepack used true"));
}

TEST_CASE("a tensor of a quantized module that nobody knows is reported") {
  TestCheckpoint stored = SmallGptq();
  stored.tensors.push_back({kGptqModule + ".smooth", "F16", {1}, std::vector<std::byte>(2)});
  const Finding finding = OnlyFinding(stored);
  CHECK(finding.id == "tensor-unknown");
  CHECK(finding.where == kGptqModule + ".smooth");
}

TEST_CASE("zero points that are padded to 32 channels read, and are reported") {
  TestCheckpoint stored = SmallGptq();  // 8 channels: one word of zero points per group
  TestTensor& zeros = PartOf(stored, "qzeros");
  zeros.shape[1] = 4;
  zeros.bytes = Words({0x77777777, 0, 0, 0, 0x77777777, 0, 0, 0});
  const Finding finding = OnlyFinding(stored);
  CHECK(finding.id == "zero-point-padded");
  CHECK(finding.where == kGptqModule);
  CHECK(finding.message == "qzeros has 4 words per group for N = 8; prepack ignores 3");
  RequireOk(ReadEverything(stored));
}

TEST_CASE("an index of groups that was never filled in is the natural order") {
  for (const uint32_t index : {0U, 0xFFFFFFFFU}) {
    CAPTURE(index);
    TestCheckpoint stored = SmallGptq();
    FillOrder(stored, index);
    CHECK(OnlyFinding(stored).id == "gptq-order-unset");
    CHECK(OrderOf(stored).empty());
    GptqConfigOf(stored)["desc_act"] = true;
    const Finding finding = OnlyFinding(stored);
    CHECK(finding.id == "order-missing");
    CHECK(finding.message == "g_idx was never filled in: natural order; desc_act is true");
  }
}

TEST_CASE("an index of groups that was filled in by half is refused") {
  // The first group's channels say 1, the others were left at what the tensor began with.
  for (const uint32_t unset : {1U, 0xFFFFFFFFU}) {
    CAPTURE(unset);
    TestCheckpoint stored = SmallGptq();
    std::vector<uint32_t> order(32, unset);
    order[0] = 0;
    PartOf(stored, "g_idx").bytes = Words(order);
    const Status status = ReadEverything(stored);
    CheckError(status, ErrorKind::kMalformed, "1 input channels in group 0");
    CHECK(status.id() == "order-unbalanced");
  }
}

TEST_CASE("an order that goes away while its module is in use is an error") {
  TestCheckpoint stored = SmallGptq();
  std::vector<uint32_t> order(32);
  for (uint32_t k = 0; k < 32; ++k) order[k] = k % 2;
  PartOf(stored, "g_idx").bytes = Words(order);
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  const QuantizedLinear& linear = opened.Module(kGptqModule);
  CHECK(linear.reordered());
  FillOrder(stored, 0);
  stored.Write(folder.path());
  std::vector<std::byte> codes(linear.k() / 2);
  CheckError(linear.ReadCodes({.n0 = 0, .rows = 1, .k0 = 0, .cols = linear.k()}, codes),
             ErrorKind::kMalformed,
             "the order of the input channels changed while prepack used it");
}

TEST_CASE("what desc_act says of the order is compared with the tensor") {
  TestCheckpoint stored = SmallGptq();
  GptqConfigOf(stored)["desc_act"] = true;
  CHECK(OnlyFinding(stored).id == "order-unneeded");
  stored.Remove(kGptqModule + ".g_idx");
  CHECK(OnlyFinding(stored).id == "order-missing");

  GptqExample x;
  x.Randomize(7, 1);
  x.Shuffle(1);
  stored = MakeGptq(x);
  const std::vector<Finding> findings = FindingsOf(stored);
  REQUIRE(findings.size() == 2);
  CHECK(findings[0].id == "order-present");
  CHECK(findings[1].id == "order-undeclared");
  GptqConfigOf(stored)["desc_act"] = true;
  CHECK(OnlyFinding(stored).id == "order-present");
}

TEST_CASE("indexes of groups may have 64 bits, and may count from the end") {
  GptqExample x;
  x.Randomize(7, 1);
  CHECK(OrderOf(MakeGptq(x)).empty());
  std::vector<int64_t> from_end;
  for (const int64_t group : x.group_of) from_end.push_back(group - 2);
  TestCheckpoint natural = MakeGptq(x);
  PartOf(natural, "g_idx").dtype = "I64";
  for (const auto& indices : {x.group_of, from_end}) {
    PartOf(natural, "g_idx").bytes = Int64s(indices);
    CHECK(OrderOf(natural).empty());
    CHECK(FindingsOf(natural).empty());
  }

  x.Shuffle(1);
  TestCheckpoint scattered = MakeGptq(x);
  const std::vector<uint32_t> order = OrderOf(scattered);
  REQUIRE(order.size() == 32);
  from_end.clear();
  for (const int64_t group : x.group_of) from_end.push_back(group - 2);
  PartOf(scattered, "g_idx").dtype = "I64";
  for (const auto& indices : {x.group_of, from_end}) {
    PartOf(scattered, "g_idx").bytes = Int64s(indices);
    CHECK(OrderOf(scattered) == order);
  }
  from_end[3] = -3;
  PartOf(scattered, "g_idx").bytes = Int64s(from_end);
  CheckError(ReadEverything(scattered), ErrorKind::kMalformed, "-3 at [3]");
  from_end[3] = int64_t{1} << 32;  // 0, if it were cut to 32 bits
  PartOf(scattered, "g_idx").bytes = Int64s(from_end);
  CheckError(ReadEverything(scattered), ErrorKind::kMalformed, "4294967296 at [3]");
}

TEST_CASE("a symmetric module with the constant of the other version is read, and reported") {
  GptqExample x;
  x.Randomize(7, 1);
  for (const bool stored_zeros : {false, true}) {
    x.stored_zeros = stored_zeros;
    TestCheckpoint stored = MakeGptq(x);
    GptqConfigOf(stored)["checkpoint_format"] = stored_zeros ? "gptq" : "gptq_v2";
    const Finding finding = OnlyFinding(stored);
    CHECK(finding.id == "gptq-zeros-other-version");
    CHECK_THAT(finding.message,
               Catch::StartsWith(stored_zeros ? "declared z - 1 (v1), but 8 is stored"
                                              : "declared z (v2), but 7 is stored"));
    const TempFolder folder;
    stored.Write(folder.path());
    const OpenedModel opened = MustOpen(folder.path());
    CHECK(ZeroPoints(opened.Module(kGptqModule), 0, 1) == std::vector<uint8_t>{8, 8});
  }
}

// An asymmetric module whose weights lie around zero, large enough to be judged by itself.
GptqExample CentredGptq(uint64_t k, bool stored_zeros) {
  GptqExample x;
  x.n = 32;
  x.k = k;
  x.symmetric = false;
  x.stored_zeros = stored_zeros;
  x.Randomize(11, 1);
  SplitMix64 random(12);
  for (uint32_t& zero : x.zeros) zero = 6 + static_cast<uint32_t>(random.Below(3));
  for (uint64_t i = 0; i < x.codes.size(); ++i) {
    const uint32_t zero = x.zeros[i / x.n / x.group_size * x.n + i % x.n];
    x.codes[i] = zero - 2 + static_cast<uint32_t>(random.Below(5));
  }
  return x;
}

// Declares z - 1.
TestCheckpoint Declared(const GptqExample& x) {
  TestCheckpoint stored = MakeGptq(x);
  GptqConfigOf(stored)["checkpoint_format"] = "gptq";
  return stored;
}

TEST_CASE("one module whose zero points follow the other version is refused by name") {
  constexpr uint64_t kEnough = 256;  // inputs of 32 channels
  TestCheckpoint stored = Declared(CentredGptq(kEnough, false));
  RequireOk(ReadEverything(stored));
  const std::string wrong = "model.layers.0.mlp.down_proj";
  AddGptqModule(stored, wrong, CentredGptq(kEnough, true));
  const TempFolder folder;
  stored.Write(folder.path());
  const Checkpoint checkpoint = Value(Checkpoint::Open(folder.path()));
  const QuantizedModel model = Value(ExamineQuantizedModel(checkpoint));
  REQUIRE(model.modules.size() == 1);
  CHECK(model.modules[0]->module() == kGptqModule);
  REQUIRE(model.errors.size() == 1);
  CHECK(model.errors[0].where() == wrong);
  CHECK(model.errors[0].id() == "gptq-zeros-contradict");
  CheckError(model.errors[0], ErrorKind::kMalformed,
             "declares zero points as z - 1 (v1), but the weights say z (v2)");
}

TEST_CASE("modules that are too small to be judged are judged together") {
  constexpr uint64_t kTooFew = 64;
  TestCheckpoint stored = Declared(CentredGptq(kTooFew, true));
  RequireOk(ReadEverything(stored));
  for (const char* name : {"model.layers.0.mlp.gate_proj", "model.layers.0.mlp.down_proj"}) {
    AddGptqModule(stored, name, CentredGptq(kTooFew, true));
  }
  const Status status = ReadEverything(stored);
  CheckError(status, ErrorKind::kMalformed, "over 6144 weights");
  CHECK(status.where() == "config.json: quantization_config.checkpoint_format");
  CHECK(status.id() == "gptq-zeros-contradict");
}

TEST_CASE("the statistic of zero points is that of each code by itself") {
  // Widths and orders that the sampling takes apart in different ways.
  for (const uint32_t bits : {2U, 3U, 4U}) {
    for (const bool act_order : {false, true}) {
      CAPTURE(bits, act_order);
      GptqExample x;
      x.bits = bits;
      x.n = 37;
      x.k = 192;
      x.group_size = 24;
      x.symmetric = false;
      x.stored_zeros = true;
      x.Randomize(bits, 0);
      if (act_order) x.Shuffle(bits);
      // What evidence is, as its header says it, one code at a time.
      const uint32_t top = (1U << bits) - 2;
      const uint32_t edge = bits == 4 ? 2 : bits == 3 ? 1 : 0;
      const uint64_t per_word = bits == 3 ? 1 : 32 / bits;
      int64_t sum = 0;
      uint64_t weights = 0;
      for (uint64_t k = 0; k < x.k; ++k) {
        const uint32_t* zeros = x.zeros.data() + static_cast<uint64_t>(x.group_of[k]) * x.n;
        for (uint64_t n = 0; n < x.n; ++n) {
          bool spoilt = false;
          const uint64_t first = n / per_word * per_word;
          for (uint64_t i = first; i < std::min(x.n, first + per_word); ++i) {
            spoilt |= zeros[i] == top + 1;
          }
          if (spoilt || zeros[n] < edge || zeros[n] > top - edge) continue;
          sum += static_cast<int64_t>(x.codes[k * x.n + n]) - static_cast<int64_t>(zeros[n]);
          ++weights;
        }
      }
      REQUIRE(weights > 0);

      const TempFolder folder;
      MakeGptq(x).Write(folder.path());
      const Checkpoint checkpoint = Value(Checkpoint::Open(folder.path()));
      gptq::Settings settings;
      settings.bits = bits;
      settings.group_size = 24;
      settings.symmetric = false;
      settings.zeros = gptq::Zeros::kStored;
      const GroupedTensors grouped = GroupByModule(checkpoint);
      for (const ModuleTensors& module : grouped.modules) {
        if (module.name != kGptqModule) continue;
        const gptq::Shape shape = Value(gptq::CheckShape(checkpoint, module, settings));
        const GroupOrder order = Value(ReadGroupOrder(checkpoint, shape.g_idx, shape.k,
                                                      shape.group_size, GroupDialect::kGptq));
        const gptq::ZeroSample sample =
            Value(gptq::SampleZeros(checkpoint, shape, order, settings));
        CHECK(sample.sum == sum);
        CHECK(sample.weights == weights);
      }
    }
  }
}

void AddPlainWeight(TestCheckpoint& stored, const std::string& module) {
  stored.tensors.push_back({module + ".weight", "F16", {1, 2}, std::vector<std::byte>(4)});
}

// Calls the only quantized module something else.
void RenameModule(TestCheckpoint& stored, const std::string& name) {
  for (TestTensor& tensor : stored.tensors) {
    if (tensor.name.starts_with(kGptqModule)) tensor.name.replace(0, kGptqModule.size(), name);
  }
}

TEST_CASE("a module that the config leaves out, but that is quantized, is reported") {
  TestCheckpoint excluded = SmallGptq();
  GptqConfigOf(excluded)["dynamic"] = {{"-:.*up_proj", Json::object()}};
  Finding finding = OnlyFinding(excluded);
  CHECK(finding.id == "module-ignored-but-quantized");
  CHECK(finding.message == "dynamic excludes it with \"-:.*up_proj\", but it is quantized");

  TestCheckpoint head = SmallGptq();
  RenameModule(head, "lm_head");
  finding = OnlyFinding(head);
  CHECK(finding.id == "module-ignored-but-quantized");
  CHECK(finding.message == "lm_head is not true, but the output head is quantized");
  GptqConfigOf(head)["lm_head"] = true;
  CHECK(FindingsOf(head).empty());

  TestCheckpoint block = SmallGptq();
  GptqConfigOf(block)["modules_in_block_to_quantize"] = {{"mlp.gate_proj"}, {"mlp.down_proj"}};
  finding = OnlyFinding(block);
  CHECK(finding.id == "module-ignored-but-quantized");
  CHECK(finding.message == "modules_in_block_to_quantize does not name it, but it is quantized");
  GptqConfigOf(block)["modules_in_block_to_quantize"].push_back("mlp.up_proj");
  CHECK(FindingsOf(block).empty());
}

TEST_CASE("a module that the config quantizes, but that is plain, is reported") {
  TestCheckpoint stored = SmallGptq();
  AddPlainWeight(stored, "model.layers.0.mlp.router");
  AddPlainWeight(stored, "lm_head");
  CHECK(FindingsOf(stored).empty());
  AddPlainWeight(stored, "model.layers.0.mlp.down_proj");
  Finding finding = OnlyFinding(stored);
  CHECK(finding.id == "module-targeted-but-plain");
  CHECK(finding.where == "model.layers.0.mlp.down_proj");
  // Nothing of these was quantized: they are as the quantizer leaves them.
  AddPlainWeight(stored, "model.visual.blocks.0.mlp.down_proj");
  AddPlainWeight(stored, "model.visual.merger.out_proj");
  CHECK(OnlyFinding(stored).where == "model.layers.0.mlp.down_proj");
  GptqConfigOf(stored)["modules_in_block_to_quantize"] = {"up_proj"};
  CHECK(FindingsOf(stored).empty());
  GptqConfigOf(stored).erase("modules_in_block_to_quantize");
  GptqConfigOf(stored)["dynamic"] = {{"-:.*down", Json::object()}};
  CHECK(FindingsOf(stored).empty());
  GptqConfigOf(stored)["lm_head"] = true;
  finding = OnlyFinding(stored);
  CHECK(finding.id == "module-targeted-but-plain");
  CHECK(finding.message == "lm_head is true, but the output head is not quantized");
}

TEST_CASE(
    "a plain projection of an unusual kind is reported only where other layers have it quantized") {
  TestCheckpoint stored = SmallGptq();
  AddPlainWeight(stored, "model.layers.0.self_attn.g_proj");
  AddPlainWeight(stored, "model.layers.1.self_attn.g_proj");
  CHECK(FindingsOf(stored).empty());
  stored = SmallGptq();
  RenameModule(stored, "model.layers.0.self_attn.g_proj");
  AddPlainWeight(stored, "model.layers.1.self_attn.g_proj");
  const Finding finding = OnlyFinding(stored);
  CHECK(finding.id == "module-targeted-but-plain");
  CHECK(finding.where == "model.layers.1.self_attn.g_proj");
}

TEST_CASE("AutoRound's widths are those of the tensors") {
  TestCheckpoint stored = SmallGptq();
  GptqConfigOf(stored)["dynamic"] = {{"+:.*up_proj", {{"bits", 8}}}};
  const TempFolder folder;
  stored.Write(folder.path());
  CHECK_FALSE(OpenModel(folder.path()).ok());
  GptqConfigOf(stored)["provider"] = "auto-round";
  const Finding finding = OnlyFinding(stored);
  CHECK(finding.id == "module-scheme-mismatch");
  CHECK(finding.message ==
        "the config says 8 bits, but the tensors hold 4; prepack trusts the tensors");
}

// What is said of a module where the rules of quantize_config.json stand in another order.
std::vector<Finding> FindingsOfOrders(const Json& ours, const Json& theirs) {
  TestCheckpoint stored = SmallGptq();
  GptqConfigOf(stored)["dynamic"] = ours;
  Json copy = GptqConfigOf(stored);
  copy["dynamic"] = theirs;
  const TempFolder folder;
  stored.Write(folder.path());
  std::ofstream(folder.path() / "quantize_config.json") << copy.dump();
  return MustOpen(folder.path()).model.findings;
}

TEST_CASE("the order of rules is reported only where it makes a difference") {
  const Json four = {{"bits", 4}};
  const Json none = Json::object();
  const std::vector<Finding> differ = FindingsOfOrders({{"+:.*up_proj", four}, {"-:.*mlp", none}},
                                                       {{"-:.*mlp", none}, {"+:.*up_proj", four}});
  REQUIRE(differ.size() == 1);
  CHECK(differ[0].id == "config-order-differs");
  CHECK(differ[0].where == kGptqModule);
  CHECK_THAT(differ[0].message,
             Catch::Contains("\"+:.*up_proj\" comes first here and counts, as in transformers and "
                             "vLLM, but \"-:.*mlp\" comes first in quantize_config.json.dynamic"));
  // The rules mean the same, or are in the same order where they match.
  CHECK(FindingsOfOrders({{"+:.*up_proj", four}, {".*mlp", none}},
                         {{".*mlp", none}, {"+:.*up_proj", four}})
            .empty());
  const std::vector<Finding> apart =
      FindingsOfOrders({{"-:.*down", none}, {"+:.*up", four}, {"-:.*mlp", none}},
                       {{"+:.*up", four}, {"-:.*mlp", none}, {"-:.*down", none}});
  REQUIRE(apart.size() == 1);
  CHECK(apart[0].id == "config-pattern-unmatched");
}

TEST_CASE("activations that are quantized at run time are reported, and the weights read") {
  for (const Json& activation :
       {Json("w4afp8"), Json({{"mode", "w4afp8"}}), Json({{"mode", "w4afp8"}, {"mlp", nullptr}})}) {
    TestCheckpoint stored = SmallGptq();
    GptqConfigOf(stored)["activation"] = activation;
    const Finding finding = OnlyFinding(stored);
    CHECK(finding.id == "gptq-activations");
    CHECK(finding.where == "config.json: quantization_config.activation");
    CHECK(finding.message ==
          "\"w4afp8\" quantizes activations at run time; prepack reads the weights and leaves "
          "activations in 16 bits");
  }
  for (const Json& none : {Json(nullptr), Json(false)}) {
    TestCheckpoint stored = SmallGptq();
    GptqConfigOf(stored)["activation"] = none;
    CHECK(FindingsOf(stored).empty());
  }
  TestCheckpoint wrong = SmallGptq();
  GptqConfigOf(wrong)["activation"] = {{"recipe", "x"}};
  const TempFolder folder;
  wrong.Write(folder.path());
  CheckError(OpenModel(folder.path()).status(), ErrorKind::kMalformed,
             "activation: the field has the wrong type");
}

TEST_CASE("entries of dynamic that match no module are reported") {
  TestCheckpoint stored = SmallGptq();
  GptqConfigOf(stored)["dynamic"] = {
      {".*up_proj", {{"bits", 4}}}, {"-:.*gate", Json::object()}, {"model.norm", {{"bits", 8}}}};
  const Finding finding = OnlyFinding(stored);
  CHECK(finding.id == "config-pattern-unmatched");
  CHECK(finding.where == "config.json: quantization_config.dynamic");
  CHECK(finding.message ==
        "2 of 3 entries match no module of the checkpoint: \"-:.*gate\", \"model.norm\"");
}

}  // namespace
}  // namespace prepack::testing
