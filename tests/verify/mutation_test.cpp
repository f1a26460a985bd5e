// Every mistake that packing could make, made on purpose in every layout: which level of verify
// catches it? The hashes of the folder are made to fit, so that integrity cannot.

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checkpoint_builder.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/random.h"
#include "prepack/io/file.h"
#include "prepack/verify/integrity.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/in_parts.h"
#include "verify/mutations.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;

const std::string kAttention = "model.layers.0.self_attn.";

// Two modules of one shape, and what they are called in the source that is made of them.
struct Pair {
  std::string module;
  std::string other;
  std::string module_as = module;
  std::string other_as = other;

  // The new name of a tensor of the two; empty: it belongs to neither.
  std::string NameOf(const std::string& tensor) const {
    if (tensor.starts_with(module + ".")) return module_as + tensor.substr(module.size());
    if (tensor.starts_with(other + ".")) return other_as + tensor.substr(other.size());
    return "";
  }
};

// Two modules of a real checkpoint, one with a bias, and a tensor that is not quantized.
void WriteSource(const fs::path& checkpoint, const Pair& pair, const fs::path& folder) {
  const Checkpoint source = Value(Checkpoint::Open(checkpoint));
  TestCheckpoint small;
  small.config = source.config();
  small.config.erase("architectures");  // these are modules, and no model
  uint64_t n = 0;
  for (const StoredTensor& tensor : source.tensors()) {
    const std::string of_pair = pair.NameOf(std::string(tensor.name));
    const bool is_norm =
        tensor.name == "model.norm.weight" || tensor.name == "transformer.ln_f.weight";
    if ((of_pair.empty() && !is_norm) || tensor.name.ends_with(".bias")) continue;
    std::vector<std::byte> bytes(tensor.bytes);
    RequireOk(source.Read(tensor, 0, bytes));
    small.tensors.push_back({is_norm ? std::string(tensor.name) : of_pair,
                             std::string(DTypeName(tensor.dtype)),
                             {tensor.shape.begin(), tensor.shape.end()},
                             std::move(bytes)});
  }
  const QuantizedModel model = Value(ReadQuantizedModel(source));
  n = model.Find(pair.module)->n();
  SplitMix64 random(1);
  std::vector<std::byte> bias;
  for (uint64_t i = 0; i < n; ++i) {
    const uint16_t bits = F32ToBF16(static_cast<float>(random.Gaussian()));
    bias.push_back(static_cast<std::byte>(bits & 0xFFU));
    bias.push_back(static_cast<std::byte>(bits >> 8));
  }
  small.tensors.push_back({pair.module_as + ".bias", "BF16", {n}, std::move(bias)});
  small.Write(folder);
}

struct MutatedExample {
  const char* name = "";  // for the table below: the layout, and what is special
  const char* checkpoint = "";
  PackedExample packed;
  Pair pair = {kAttention + "k_proj", kAttention + "v_proj"};  // 128 x 384
};

std::vector<MutatedExample> Examples() {
  using enum WantedScheme;
  const Pair large = {kAttention + "q_proj", kAttention + "o_proj"};  // 384 x 384
  const std::string mlp = "model.layers.0.mlp.";
  const Pair two_experts = {mlp + "gate_proj", mlp + "up_proj", mlp + "experts.0.gate_proj",
                            mlp + "experts.1.gate_proj"};  // 192 x 128
  return {
      {"vllm-cpu/wna16", "ct-w4a16-g128-sym", {"vllm-cpu"}},
      {"vllm-cpu/wna16 asymmetric", "ct-w4a16-g32-asym", {"vllm-cpu"}},
      {"vllm-cpu/wna16 reordered", "gptqmodel-w4-actorder-g128", {"vllm-cpu"}},
      {"vllm-cpu/int4-w4a8", "ct-w4a8", {"vllm-cpu"}},
      {"vllm-cpu/int4-w4a8 asymmetric", "ct-w4a16-g32-asym", {"vllm-cpu", kW4A8}},
      {"vllm-cpu/int4-w4a8 of f16 scales", "awq-gemm-g128", {"vllm-cpu", kW4A8}},
      {"vllm-cpu/int8-vnni", "ct-w8a8-dynamic", {"vllm-cpu"}},
      {"vllm-cpu/int8-plain", "ct-w8a8-asym-act", {"vllm-cpu"}},
      {"vllm-cpu/int8-plain static", "ct-w8a8-static", {"vllm-cpu"}},
      {"vllm-cpu/fp8-vnni", "ct-fp8-dynamic", {"vllm-cpu"}},
      {"vllm-cpu/fp8-vnni one row of blocks", "ct-fp8-block", {"vllm-cpu"}},
      {"vllm-cpu/fp8-vnni blocks", "ct-fp8-block", {"vllm-cpu"}, large},
      {"vllm-cpu/fp8-w8a8-vnni4", "ct-fp8-dynamic", {"vllm-cpu", kW8A8}},
      {"vllm-cpu/mxfp4", "ct-mxfp4", {"vllm-cpu"}, two_experts},
      {"vllm-cpu/bf16-vnni", "ct-w8a16-g128-sym", {"vllm-cpu"}},
      {"zentorch/woq", "ct-w4a16-g128-sym", {"zentorch"}},
      {"zentorch/woq asymmetric", "awq-gemm-g128", {"zentorch"}},
      {"zentorch/da8w4", "ct-w4a8", {"zentorch"}},
      {"zentorch/int8", "ct-w8a8-dynamic", {"zentorch"}},
      {"vllm-arm/int4-w4a8", "ct-w4a8", {"vllm-arm"}},
      {"vllm-arm/int8-neon", "ct-w8a8-dynamic", {"vllm-arm"}, two_experts},
      {"vllm-arm/bf16-neon", "ct-w8a16-g128-sym", {"vllm-arm"}, two_experts},
      {"onednn/w4a16 asymmetric", "gptqmodel-w4-asym-v1", {"onednn"}},
      {"onednn/w4a16 reordered", "gptqmodel-w4-actorder-g128", {"onednn"}},
      {"onednn/w4a8 asymmetric", "ct-w4a16-g32-asym", {"onednn", kW4A8}},
      {"onednn/w8a8", "ct-w8a8-dynamic", {"onednn"}},
      {"onednn/w8a8 asymmetric activations", "ct-w8a8-asym-act", {"onednn"}},
      {"plain/bf16", "ct-w8a16-g128-sym", {"onednn"}},
      {"plain/bf16-conv1d",
       "gptqmodel-gpt2-w8",
       {"onednn"},
       {"transformer.h.0.mlp.c_fc", "transformer.h.1.mlp.c_fc"}},
  };
}

// Which levels catch a mutation once the hashes fit.
enum class Caught : uint8_t {
  kExactness,
  kExactnessAndGemm,
  kIntegrity,              // the layout takes no such module
  kIntegrityAndExactness,  // the parts are not what the layout makes of such a module
  kRefused,                // nothing can make the manifest agree
};

struct ExpectedRefusal {
  const char* mutation = "";
  size_t examples = 0;  // that have something to change in this way
  Caught caught = Caught::kExactnessAndGemm;
  std::map<std::string, Caught> otherwise = {};  // by example
};

std::vector<ExpectedRefusal> ExpectedTable() {
  using enum Caught;
  return {
      {"nibbles swapped in every byte", 14, kExactnessAndGemm},
      {"nibbles swapped in one byte", 14, kExactnessAndGemm},
      {"one code off by one", 29, kExactnessAndGemm},
      {"every zero point off by one", 7, kExactnessAndGemm},
      {"one zero point off by one", 7, kExactnessAndGemm},
      {"scales shifted by one channel", 22, kExactnessAndGemm},
      {"scales of groups twice as large", 15, kExactnessAndGemm},
      {"scales truncated", 3, kExactnessAndGemm},
      {"scales of another module", 24, kExactnessAndGemm},
      {"two blocks of channels exchanged", 29, kExactnessAndGemm},
      {"one sum beside the codes off by one",
       7,
       kExactness,
       {{"vllm-cpu/int4-w4a8", kExactnessAndGemm},
        {"vllm-cpu/int4-w4a8 asymmetric", kExactnessAndGemm},
        {"vllm-cpu/int4-w4a8 of f16 scales", kExactnessAndGemm},
        {"vllm-arm/int4-w4a8", kExactnessAndGemm}}},
      {"sums beside the codes dropped", 7, kExactnessAndGemm},
      {"one sum of a channel off in its last bit", 2, kExactness},
      {"sums of the channels dropped", 2, kExactnessAndGemm},
      {"order of inputs replaced by none", 2, kExactnessAndGemm},
      {"order of inputs dropped", 2, kExactnessAndGemm},
      {"order of inputs made up",
       27,
       kExactnessAndGemm,
       {{"vllm-cpu/mxfp4", kIntegrity},
        {"vllm-arm/int8-neon", kIntegrity},
        {"vllm-arm/bf16-neon", kIntegrity}}},
      // The weight holds another copy, which the op reads.
      {"bias shifted by one channel", 29, kExactnessAndGemm, {{"vllm-arm/int4-w4a8", kExactness}}},
      {"bias dropped", 29, kExactnessAndGemm, {{"vllm-arm/int4-w4a8", kExactness}}},
      // Half as many steps cost 6 dB, which is about what the bar leaves.
      {"static scale of activations doubled",
       1,
       kExactness,
       {{"vllm-cpu/int8-plain static", kExactnessAndGemm}}},
      {"weight of another module", 29, kExactnessAndGemm},
      {"last quarter of the weight lost", 29, kExactnessAndGemm},
      {"file cut", 29, kRefused},
      {"group size halved in the manifest", 14, kIntegrityAndExactness},
      {"one scale for all claimed in the manifest", 8, kExactness},
      {"a tensor that passes through changed", 29, kExactness},
      {"one code of the source changed", 29, kExactnessAndGemm},
  };
}

std::string Describe(Caught caught) {
  switch (caught) {
    case Caught::kExactness:
      return "exactness";
    case Caught::kExactnessAndGemm:
      return "exactness gemm";
    case Caught::kIntegrity:
      return "integrity";
    case Caught::kIntegrityAndExactness:
      return "integrity exactness";
    case Caught::kRefused:
      return "refused";
  }
  return "";
}

// The names of the levels that failed, or "refused" where the folder could not be verified at all.
std::string Catchers(const fs::path& folder, const fs::path& source) {
  VerifyOptions options;
  options.folder = folder;
  options.source = source;
  options.engine = EngineChoice::kReference;
  options.jobs = 1;
  options.sampled_weights = 1;  // most output channels are outside of the sample
  Progress progress;
  const Result<VerifyReport> report = VerifyAlsoInParts(options, progress, {1, 2, 3, 7});
  if (!report.ok()) {
    CheckError(report.status(), ErrorKind::kMalformed, "");
    return "refused";
  }
  std::string catchers;
  for (const Level level : kLevels) {
    if (report->level(level).state != LevelState::kFailed) continue;
    catchers += (catchers.empty() ? "" : " ") + std::string(LevelName(level));
  }
  CHECK((report->Verdict() == LevelState::kPassed) == catchers.empty());
  return catchers;
}

bool PassesIntegrity(const fs::path& path) {
  const Result<PackedFolder> folder = PackedFolder::Open(path);
  if (!folder.ok()) return false;  // the manifest is not what was written
  ModuleFigures figures;
  Progress progress;
  return Value(IntegrityCheck(*folder, nullptr, progress).Finish(1, figures)).state ==
         LevelState::kPassed;
}

// Applies one mutation to a copy of folder and source; what caught it, or empty when there was
// nothing to change.
std::string CatchersOf(const Mutation& mutation, const MutatedExample& example,
                       const TempFolder& temp) {
  const TempFolder copy;
  fs::copy(temp / "out", copy / "out");
  fs::copy(temp / "source", copy / "source");
  Mutant mutant(copy / "out", copy / "source", example.pair.module_as, example.pair.other_as);
  if (!mutation.apply(mutant)) return "";
  // With the hashes as they were.
  CHECK(PassesIntegrity(copy / "out") ==
        std::string_view(mutation.name).ends_with("source changed"));
  mutant.Rehash();
  const std::string catchers = Catchers(copy / "out", copy / "source");
  return catchers.empty() ? "nothing" : catchers;
}

TEST_CASE("every mistake in packing is caught, by the levels that the table says") {
  const std::vector<ExpectedRefusal> table = ExpectedTable();
  std::vector<size_t> examples(table.size());
  REQUIRE(table.size() == AllMutations().size());
  for (const MutatedExample& example : Examples()) {
    const TempFolder temp;
    WriteSource(Fixture(std::string("checkpoints/") + example.checkpoint), example.pair,
                temp / "source");
    const ConvertReport packed = Pack(temp / "source", example.packed, temp / "out");
    const std::string name = example.name;
    CAPTURE(name);
    CHECK(packed.layouts == std::map<std::string, size_t>{{name.substr(0, name.find(' ')), 2}});
    CHECK(Catchers(temp / "out", temp / "source").empty());
    for (size_t i = 0; i < table.size(); ++i) {
      const Mutation& mutation = AllMutations()[i];
      CAPTURE(mutation.name);
      CHECK(std::string(mutation.name) == table[i].mutation);
      const std::string caught = CatchersOf(mutation, example, temp);
      if (caught.empty()) continue;
      ++examples[i];
      const auto otherwise = table[i].otherwise.find(name);
      CHECK(caught ==
            Describe(otherwise == table[i].otherwise.end() ? table[i].caught : otherwise->second));
    }
  }
  for (size_t i = 0; i < table.size(); ++i) {
    CAPTURE(table[i].mutation);
    CHECK(examples[i] == table[i].examples);
  }
}

// The same for outputs that are checkpoints, where the GEMM level decodes both sides: whatever
// changes a number, it sees, too, however little that is.
TEST_CASE("every mistake in an output that is a checkpoint is caught") {
  const Pair large = {kAttention + "q_proj", kAttention + "o_proj"};
  const std::vector<MutatedExample> examples = {
      {"compressed-tensors/pack-quantized", "awq-gemm-g128", {"compressed-tensors"}},
      {"compressed-tensors/int-quantized", "ct-w8a8-static", {"compressed-tensors"}},
      {"compressed-tensors/float-quantized", "ct-fp8-block", {"compressed-tensors"}, large},
      {"gptq/v1", "ct-w4a16-g128-sym", {"gptq"}},
      {"gptq-v2/v2 asymmetric", "ct-w4a16-g32-asym", {"gptq-v2"}},
      {"awq/gemm", "ct-w4a16-g32-asym", {"awq"}},
      {"auto-round/auto_gptq", "gptqmodel-w8-sym", {"auto-round"}},
      {"fp8/e4m3", "ct-fp8-block", {"fp8"}, large},
  };
  const std::set<std::string_view> of_numbers = {"nibbles swapped in every byte",
                                                 "nibbles swapped in one byte",
                                                 "one code off by one",
                                                 "every zero point off by one",
                                                 "one zero point off by one",
                                                 "scales shifted by one channel",
                                                 "scales of groups twice as large",
                                                 "scales truncated",
                                                 "scales of another module",
                                                 "two blocks of channels exchanged",
                                                 "bias shifted by one channel",
                                                 "bias dropped",
                                                 "static scale of activations doubled",
                                                 "weight of another module",
                                                 "last quarter of the weight lost",
                                                 "one code of the source changed"};
  size_t tried = 0;
  for (const MutatedExample& example : examples) {
    const TempFolder temp;
    WriteSource(Fixture(std::string("checkpoints/") + example.checkpoint), example.pair,
                temp / "source");
    const ConvertReport packed = Pack(temp / "source", example.packed, temp / "out");
    const std::string name = example.name;
    CAPTURE(name);
    CHECK(packed.layouts == std::map<std::string, size_t>{{name.substr(0, name.find(' ')), 2}});
    CHECK(Catchers(temp / "out", temp / "source").empty());
    for (const Mutation& mutation : AllMutations()) {
      CAPTURE(mutation.name);
      const std::string caught = CatchersOf(mutation, example, temp);
      if (caught.empty()) continue;
      ++tried;
      CAPTURE(caught);
      CHECK(caught != "nothing");
      // Where the config says symmetric, nobody reads stored zero points.
      const bool unread = std::string_view(mutation.name).find("zero point") != std::string::npos &&
                          (name == "gptq/v1" || name == "auto-round/auto_gptq");
      if (unread) {
        CHECK(caught == "exactness");
      } else if (of_numbers.contains(mutation.name)) {
        CHECK(caught == "exactness gemm");
      }
    }
  }
  CHECK(tried > 100);
}

// The columns of docs/verify.md.
std::string DocsRow(const ExpectedRefusal& expected) {
  std::string name = std::string("| ") + expected.mutation + " | ";
  const bool weighed = std::ranges::any_of(
      expected.otherwise, [](const auto& other) { return other.second != Caught::kIntegrity; });
  switch (expected.caught) {
    case Caught::kExactness:
      return name + (!weighed ? "no | yes | no |" : "no | yes | where it weighs enough |");
    case Caught::kExactnessAndGemm:
      return name + (!weighed ? "no | yes | yes |" : "no | yes | where it weighs enough |");
    case Caught::kIntegrity:
      return name + "yes | not run | not run |";
    case Caught::kIntegrityAndExactness:
      return name + "yes | yes | not run |";
    case Caught::kRefused:
      return name + "refused | not run | not run |";
  }
  return name;
}

TEST_CASE("the docs say of every mistake what the table says") {
  const std::string docs = Value(ReadTextFile(Fixture("../docs/verify.md"), 1 << 20));
  size_t rows = 0;
  for (const ExpectedRefusal& expected : ExpectedTable()) {
    CAPTURE(DocsRow(expected));
    CHECK(docs.find("\n" + DocsRow(expected) + "\n") != std::string::npos);
    ++rows;
  }
  CHECK(rows == AllMutations().size());
}

}  // namespace
}  // namespace prepack::testing
