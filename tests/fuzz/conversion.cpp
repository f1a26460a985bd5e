// A whole conversion. A sound checkpoint, made from the input, converts, or has no layout; one with
// one thing damaged converts, too, or is refused with a reason. Whatever was converted is intact,
// and exactly what a second decoder reads in the source.
//
// Input: the checkpoint (made_checkpoint.h), the target and options, then the damage.

#include "fuzz/fuzz_target.h"
#include "fuzz/made_checkpoint.h"
#include "fuzz/read_module.h"
#include "fuzz/scratch_folder.h"
#include "prepack/convert/convert.h"
#include "prepack/formats/format.h"
#include "prepack/layouts/table.h"
#include "prepack/verify/verify.h"

namespace prepack::fuzz {
namespace {

const std::string kSource = "source";
const std::string kOutput = "output";

// What is in the way of writing it at all: the test's own writer puts a tensor where a name says.
bool CanBeWritten(const testing::TestCheckpoint& checkpoint) {
  return std::ranges::any_of(checkpoint.tensors,
                             [](const auto& tensor) { return tensor.shard == 0; });
}

void CheckModules(const std::filesystem::path& source, bool sound) {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(source);
  Demand(checkpoint.ok() || !sound, "a sound checkpoint can be opened",
         checkpoint.status().ToString());
  if (!checkpoint.ok()) return DemandGoodError(checkpoint.status());
  const Result<QuantizedModel> model = ReadQuantizedModel(*checkpoint);
  Demand(model.ok() || !sound, "a sound checkpoint can be read", model.status().ToString());
  if (!model.ok()) return DemandGoodError(model.status());
  for (const auto& module : model->modules) {
    const Status status = ReadModule(*module);
    Demand(status.ok() || !sound, "a sound module can be read", status.ToString());
    DemandGoodError(status);
  }
}

std::string TextOf(const LevelResult& level) {
  std::string text = level.reason;
  for (const Problem& problem : level.problems)
    text += problem.where + ": " + problem.message + "\n";
  return text;
}

void DemandVerified(const std::filesystem::path& source, const std::filesystem::path& output) {
  VerifyOptions options;
  options.folder = output;
  options.source = source;
  options.skip = {Level::kGemm, Level::kQuality};
  options.jobs = 1;
  Progress progress;
  const Result<VerifyReport> report = Verify(options, progress);
  Demand(report.ok(), "what was converted can be verified", report.status().ToString());
  for (const Level level : {Level::kIntegrity, Level::kExactness}) {
    Demand(report->level(level).state == LevelState::kPassed, "what was converted is right",
           TextOf(report->level(level)));
  }
}

void Run(Input input) {
  static const ScratchFolder folder;
  testing::TestCheckpoint stored = MakeCheckpoint(input);
  ConvertOptions options;
  const Target& target = AllTargets()[input.Below(AllTargets().size())];
  options.plan.target = target.id;
  options.plan.fuse = input.Bool() && !target.checkpoint;
  options.plan.exact_scales = input.Bool() && !target.checkpoint;
  options.plan.fallback = input.OneOf({Fallback::kKeep, Fallback::kDequantize, Fallback::kError});
  const bool sound = input.empty();
  if (!sound) Damage(input, stored);
  if (!CanBeWritten(stored)) return;
  folder.Remove(kSource);
  folder.Remove(kOutput);
  stored.Write(folder / kSource);

  CheckModules(folder / kSource, sound);
  options.source = folder / kSource;
  options.output = folder / kOutput;
  options.jobs = 1;
  options.flush = false;
  Progress progress;
  const Status converted = Convert(options, progress).status();
  if (!converted.ok()) {
    Demand(!std::filesystem::exists(options.output), "a refused conversion leaves nothing");
    return DemandGoodError(converted);
  }
  DemandVerified(options.source, options.output);
}

}  // namespace
}  // namespace prepack::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  prepack::fuzz::Run({data, size});
  return 0;
}
