// convert --verify: a conversion that is verified while it runs is judged as its output is
// afterwards.

#include "prepack/verify/conversion_check.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include "prepack/io/file.h"
#include "prepack/verify/report/writers.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;

struct ObservedExample {
  const char* fixture = "";
  const char* target = "";
};

ConvertOptions ConversionOf(const ObservedExample& example, const fs::path& output) {
  ConvertOptions options;
  options.source = Fixture(std::string("checkpoints/") + example.fixture);
  options.output = output;
  options.plan.target = example.target;
  options.plan.fallback = Fallback::kDequantize;
  options.jobs = 2;
  options.flush = false;
  return options;
}

VerifyOptions VerificationOf(const ConvertOptions& conversion) {
  VerifyOptions options;
  options.folder = conversion.output;
  options.source = conversion.source;
  options.engine = EngineChoice::kReference;
  options.jobs = 2;
  return options;
}

void CheckSameVerdict(const ObservedExample& example) {
  INFO(example.fixture << " for " << example.target);
  TempFolder temp;
  ConvertOptions conversion = ConversionOf(example, temp / "out");
  const VerifyOptions verification = VerificationOf(conversion);
  Progress progress;
  ConversionCheck check(verification, progress);
  conversion.observer = &check;
  Value(Convert(conversion, progress));
  const VerifyReport report = Value(check.Finish());
  CHECK(report.Verdict() == LevelState::kPassed);
  CHECK(VerifyReportJson(report) == VerifyReportJson(Value(Verify(verification, progress))));
}

TEST_CASE("a conversion that is verified on the way gets the verdict of a later verify") {
  CheckSameVerdict({.fixture = "ct-w4a16-g32-asym", .target = "vllm-cpu"});
  CheckSameVerdict({.fixture = "ct-w8a8-dynamic", .target = "zentorch"});
  CheckSameVerdict({.fixture = "gptqmodel-w4-actorder-g128", .target = "vllm-cpu"});
  CheckSameVerdict({.fixture = "ct-mixed", .target = "onednn"});
}

TEST_CASE("experts in one tensor are verified on the way, too") {
  CheckSameVerdict({.fixture = "gpt-oss-mxfp4", .target = "vllm-cpu"});
}

TEST_CASE("an output that is a checkpoint is verified when it is complete") {
  CheckSameVerdict({.fixture = "ct-w4a16-g32-asym", .target = "gptq"});
}

// Damages every module, or every tensor that passes through, before it is looked at.
class Saboteur final : public ConversionObserver {
 public:
  Saboteur(ConversionObserver& observer, std::string victim)
      : observer_(observer), victim_(std::move(victim)) {}

  Status Begins(const fs::path& folder, Manifest manifest, MovingSource source) override {
    for (const auto& [name, record] : manifest.modules) places_[name] = WeightOf(record);
    for (const TensorRecord& tensor : manifest.tensors) places_[tensor.tensor] = tensor;
    folder_ = folder;
    return observer_.Begins(folder, std::move(manifest), std::move(source));
  }
  uint64_t bytes() const override { return observer_.bytes(); }
  Status ModuleIsWritten(const std::string& module) override {
    Damage(module);
    return observer_.ModuleIsWritten(module);
  }
  Status TensorIsWritten(const std::string& tensor) override {
    Damage(tensor);
    return observer_.TensorIsWritten(tensor);
  }
  Result<std::vector<MeasuredNote>> SourceMayGo() override { return observer_.SourceMayGo(); }
  Status SourceFileMoved(size_t file) override { return observer_.SourceFileMoved(file); }

 private:
  // The part that has the codes: the largest.
  static TensorRecord WeightOf(const ModuleRecord& record) {
    return std::ranges::max_element(record.parts, {},
                                    [](const auto& part) { return part.second.bytes(); })
        ->second;
  }

  void Damage(const std::string& name) const {
    if (name != victim_) return;
    const TensorRecord& place = places_.at(name);
    File file = Value(File::OpenForUpdate(folder_ / place.file));
    std::array<std::byte, 1> byte{};
    RequireOk(file.ReadAt(place.offset + 5, byte));
    byte[0] ^= std::byte{1};
    RequireOk(file.WriteAt(place.offset + 5, byte));
  }

  ConversionObserver& observer_;
  std::string victim_;
  fs::path folder_;
  std::map<std::string, TensorRecord> places_;
};

// The report of a conversion of ct-w4a16-g32-asym in which one bit of `victim` goes wrong after it
// was written.
VerifyReport ReportOfSabotage(const std::string& victim) {
  TempFolder temp;
  ConvertOptions conversion =
      ConversionOf({.fixture = "ct-w4a16-g32-asym", .target = "vllm-cpu"}, temp / "out");
  const VerifyOptions verification = VerificationOf(conversion);
  Progress progress;
  ConversionCheck check(verification, progress);
  Saboteur saboteur(check, victim);
  conversion.observer = &saboteur;
  Value(Convert(conversion, progress));
  return Value(check.Finish());
}

TEST_CASE("what goes wrong between packing and the page cache fails all three levels") {
  const VerifyReport report = ReportOfSabotage(kDownProj);
  for (const Level level : {Level::kIntegrity, Level::kExactness, Level::kGemm}) {
    INFO(LevelName(level));
    CHECK(report.level(level).state == LevelState::kFailed);
    REQUIRE(report.level(level).problems.size() == 1);
    CHECK(report.level(level).problems.front().module == kDownProj);
  }
}

TEST_CASE("a tensor that passes through is compared on the way") {
  const VerifyReport report = ReportOfSabotage("model.layers.0.input_layernorm.weight");
  CHECK(report.level(Level::kIntegrity).state == LevelState::kFailed);
  REQUIRE(report.level(Level::kExactness).problems.size() == 1);
  CHECK(report.level(Level::kExactness).problems.front().message ==
        "differs from the source at byte 5");
  CHECK(report.level(Level::kGemm).state == LevelState::kPassed);
}

TEST_CASE("what an output fails by is not consumed") {
  const std::string victim =
      GENERATE(std::string(kDownProj), std::string("model.layers.0.input_layernorm.weight"));
  const char* target = GENERATE("vllm-cpu", "compressed-tensors", "gptq-v2", "awq", "bf16");
  INFO(victim << " for " << target);
  TempFolder temp;
  ConvertOptions conversion =
      ConversionOf({.fixture = "ct-w4a16-g32-asym", .target = target}, temp / "out");
  fs::copy(conversion.source, temp / "source");
  conversion.source = temp / "source";
  conversion.flush = true;
  conversion.flow.consume = true;
  conversion.resume = true;
  const VerifyOptions verification = VerificationOf(conversion);
  Progress progress;
  ConversionCheck check(verification, progress);
  Saboteur saboteur(check, victim);
  conversion.observer = &saboteur;
  CheckError(Convert(conversion, progress).status(), ErrorKind::kCheckFailed, victim);
  CHECK(fs::exists(temp / "source/model.safetensors"));
  CHECK(!fs::exists(temp / "out"));

  ConversionCheck sound(verification, progress);
  conversion.observer = &sound;
  Value(Convert(conversion, progress));
  CHECK(Value(sound.Finish()).Verdict() == LevelState::kPassed);
  CHECK(!fs::exists(temp / "source/model.safetensors"));
  CHECK(fs::exists(temp / "source/model.safetensors.headers"));
}

TEST_CASE("what an earlier run has written is verified in the end") {
  TempFolder temp;
  ConvertOptions conversion =
      ConversionOf({.fixture = "ct-w4a16-g32-asym", .target = "vllm-cpu"}, temp / "out");
  conversion.resume = true;
  conversion.jobs = 1;
  // The run ends when it has written a few units.
  class Interrupter final : public ConversionObserver {
   public:
    Status Begins(const fs::path& /*folder*/, Manifest /*manifest*/,
                  MovingSource /*source*/) override {
      return {};
    }
    uint64_t bytes() const override { return 0; }
    Status ModuleIsWritten(const std::string& module) override {
      return ++written_ < 4 ? Status() : Interrupted(module);
    }
    Status TensorIsWritten(const std::string& /*tensor*/) override { return {}; }
    Result<std::vector<MeasuredNote>> SourceMayGo() override { return std::vector<MeasuredNote>(); }
    Status SourceFileMoved(size_t /*file*/) override { return {}; }

   private:
    int written_ = 0;
  };
  Interrupter interrupter;
  conversion.observer = &interrupter;
  Progress progress;
  CheckError(Convert(conversion, progress).status(), ErrorKind::kInterrupted, "");

  const VerifyOptions verification = VerificationOf(conversion);
  ConversionCheck check(verification, progress);
  conversion.observer = &check;
  CHECK(Value(Convert(conversion, progress)).resumed_units >= 4);
  const VerifyReport report = Value(check.Finish());
  CHECK(report.Verdict() == LevelState::kPassed);
  CHECK(VerifyReportJson(report) == VerifyReportJson(Value(Verify(verification, progress))));

  // The next run finds that nothing is left to do: then the folder is verified as it is.
  ConversionCheck nothing(verification, progress);
  conversion.observer = &nothing;
  CHECK(Value(Convert(conversion, progress)).was_done);
  CHECK(Value(nothing.Finish()).Verdict() == LevelState::kPassed);
}

TEST_CASE("a folder that is not what was being made is refused") {
  TempFolder temp;
  Pack(Fixture("checkpoints/ct-w4a16-g32-asym"), {.target = "vllm-cpu"}, temp / "a");
  Pack(Fixture("checkpoints/ct-mixed"), {.target = "vllm-cpu"}, temp / "b");
  PackedFolder folder =
      Value(PackedFolder::OpenUnfinished(temp / "a", Value(ReadManifest(temp / "a"))));
  const ModuleRecord* record = &folder.manifest().modules.at(kDownProj);
  CheckError(folder.Complete(temp / "b"), ErrorKind::kMalformed,
             "its modules and tensors are not those that were to be made");
  RequireOk(folder.Complete(temp / "a"));
  CHECK(record == &folder.manifest().modules.at(kDownProj));
  CHECK(record->parts.contains("weight"));
}

}  // namespace
}  // namespace prepack::testing
