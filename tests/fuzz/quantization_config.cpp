// The config of a quantizer, beside the tensors that it might speak of: it is read and planned for
// every target, and all that the modules hold is delivered, or there is an error that says why not.
//
// Input: the checkpoint that it lies beside; config.json up to a NUL (empty: there is none); which
// copy of the quantization config there is besides, and its text.

#include "formats/auto_round_example.h"
#include "formats/awq_example.h"
#include "formats/ct_example.h"
#include "formats/fp4_example.h"
#include "formats/gptq_example.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/read_module.h"
#include "fuzz/scratch_folder.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/plan.h"
#include "prepack/formats/format.h"
#include "prepack/layouts/table.h"

namespace prepack::fuzz {
namespace {

using testing::TestCheckpoint;

constexpr const char* kConfig = "config.json";
constexpr const char* kCopies[] = {"", "quantize_config.json", "quant_config.json",
                                   "quantization_config.json", "params.json"};

// Several modules, one of them an expert, so that patterns have something to tell apart.
TestCheckpoint WithMoreModules(TestCheckpoint checkpoint, const std::string& module) {
  const std::vector<testing::TestTensor> tensors = checkpoint.tensors;
  for (const char* name :
       {"model.layers.0.self_attn.q_proj", "model.layers.1.mlp.experts.3.up_proj", "lm_head"}) {
    for (testing::TestTensor tensor : tensors) {
      if (!tensor.name.starts_with(module)) continue;
      tensor.name.replace(0, module.size(), name);
      checkpoint.tensors.push_back(tensor);
    }
  }
  return checkpoint;
}

std::vector<TestCheckpoint> Checkpoints() {
  SplitMix64 random(1);
  const auto gemm = testing::RandomAwqNumbers(8, 64, 32, random);
  const auto gemv = testing::RandomAwqNumbers(4, 512, 64, random);
  testing::GptqExample gptq;
  gptq.symmetric = false;
  gptq.Randomize(7, 1);
  TestCheckpoint fp8;
  fp8.tensors = {
      {testing::kExampleModule + ".weight", "F8_E4M3", {4, 4}, std::vector(16, std::byte{0x38})},
      {testing::kExampleModule + ".weight_scale_inv", "F32", {1, 1}, testing::Hex("0000803f")}};
  TestCheckpoint int8 = fp8;
  int8.tensors[0].dtype = "I8";
  int8.tensors[1] = {testing::kExampleModule + ".weight_scale",
                     "F32",
                     {4, 1},
                     testing::Hex("0000803f 0000803f 0000803f 0000803f")};
  TestCheckpoint tgi = testing::MakeGptq(gptq);
  tgi.tensors.push_back({"gptq_bits", "I64", {1}, testing::Int64s({4})});
  tgi.tensors.push_back({"gptq_groupsize", "I64", {1}, testing::Int64s({16})});
  return {
      WithMoreModules(testing::SymmetricExample(), testing::kExampleModule),
      WithMoreModules(testing::AsymmetricExample(), testing::kExampleModule),
      WithMoreModules(testing::MakeGptq(gptq), testing::kGptqModule),
      WithMoreModules(
          testing::AwqCheckpoint(testing::AwqGemmTensors(testing::kAwqModule, gemm), "gemm", 32),
          testing::kAwqModule),
      WithMoreModules(
          testing::AwqCheckpoint(testing::AwqGemvTensors(testing::kAwqModule, gemv), "gemv", 64),
          testing::kAwqModule),
      WithMoreModules(testing::ArGptq(), testing::kArModule),
      WithMoreModules(fp8, testing::kExampleModule),
      WithMoreModules(int8, testing::kExampleModule),
      tgi,
      WithMoreModules(testing::CtMxfp4(), testing::kFp8Module),
      WithMoreModules(testing::CtNvfp4(), testing::kFp8Module),
      WithMoreModules(testing::ModelOptNvfp4(), testing::kFp8Module),
      WithMoreModules(testing::QuarkMxfp4(), testing::kFp8Module),
      testing::GptOssMxfp4(),
      WithMoreModules(testing::MinimaxMxfp8(), testing::kFp8Module),
      testing::DeepSeekV4(),
      testing::ModelOptNvfp4Stack(),
      WithMoreModules(testing::QuarkNvfp4(), testing::kFp8Module),
  };
}

// The checkpoints in memory, each in a folder of its own.
class Folders {
 public:
  Folders() {
    for (const TestCheckpoint& checkpoint : Checkpoints()) {
      folders_.push_back(std::make_unique<ScratchFolder>());
      checkpoint.Write(folders_.back()->path());
    }
  }
  const ScratchFolder& Choose(Input& input) const {
    return *folders_[input.Below(folders_.size())];
  }

 private:
  std::vector<std::unique_ptr<ScratchFolder>> folders_;
};

void PlanForAllTargets(const Checkpoint& checkpoint, const QuantizedModel& model) {
  for (const Target& target : AllTargets()) {
    PlanOptions options;
    options.target = target.id;
    options.fuse = !target.checkpoint;
    const Result<Plan> plan = MakePlan(checkpoint, model, options);
    if (!plan.ok()) DemandGoodError(plan.status());
  }
}

void Read(const Checkpoint& checkpoint) {
  const Result<QuantizedModel> model = ExamineQuantizedModel(checkpoint);
  if (!model.ok()) return DemandGoodError(model.status());
  for (const Status& error : model->errors) DemandGoodError(error);
  for (const auto& module : model->modules) DemandGoodError(ReadModule(*module));
  const Result<QuantizedModel> whole = ReadQuantizedModel(checkpoint);
  Demand(whole.ok() == model->errors.empty(), "a model is read if all of its modules are");
  if (whole.ok()) PlanForAllTargets(checkpoint, *whole);
}

void Run(Input input) {
  static const Folders folders;
  const ScratchFolder& folder = folders.Choose(input);
  const std::string_view config = input.TextToNul();
  if (config.empty()) {
    folder.Remove(kConfig);
  } else {
    folder.Write(kConfig, config);
  }
  const std::string copy = input.OneOf(kCopies);
  if (!copy.empty()) folder.Write(copy, input.Text());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  DemandGoodError(checkpoint.status());
  if (checkpoint.ok()) Read(*checkpoint);
  if (!copy.empty()) folder.Remove(copy);
}

}  // namespace
}  // namespace prepack::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  prepack::fuzz::Run({data, size});
  return 0;
}
