#include "verify/verify.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "base/isa.h"
#include "base/parallel.h"
#include "formats/format.h"
#include "gemm/engine.h"
#include "verify/exactness.h"
#include "verify/gemm_check.h"
#include "verify/integrity.h"
#include "verify/packed_folder.h"
#include "verify/second_decoder.h"

namespace prepack {
namespace {

constexpr char kNoSource[] =
    "the source checkpoint is needed, and is not where the manifest says: give it with --source";

std::map<std::string, ModuleVerification> EmptyFigures(const Manifest& manifest) {
  std::map<std::string, ModuleVerification> figures;
  for (const auto& [name, record] : manifest.modules) {
    ModuleVerification& figure = figures[name];
    figure.module = name;
    figure.layout = record.layout;
    figure.n = record.n;
    figure.k = record.k;
  }
  return figures;
}

LevelResult NotRun(std::string reason) {
  return {.state = LevelState::kNotRun, .reason = std::move(reason)};
}

// The GEMM level, or why it cannot run here.
Result<LevelResult> RunGemmLevel(const VerifyOptions& options, const PackedFolder& folder,
                                 const Checkpoint& source, Isa isa, Progress& progress,
                                 std::map<std::string, ModuleVerification>& figures,
                                 std::string& engine_name) {
  std::unique_ptr<GemmEngine> engine;
  if (options.engine == EngineChoice::kOneDnn && HasModuleForEngine(folder.manifest())) {
    Result<std::unique_ptr<GemmEngine>> made = MakeOneDnnEngine();
    if (!made.ok()) return NotRun(made.status().ToString());
    engine = *std::move(made);
  }
  const Result<SecondDecoder> decoder =
      SecondDecoder::Make(source, folder.manifest().source_format);
  if (!decoder.ok()) return NotRun(decoder.status().ToString());
  engine_name = engine ? engine->name() : "reference";
  Result<LevelResult> result = CheckGemm(
      folder, *decoder, engine.get(),
      {.kernel_db = kMinKernelSqnrDb,
       .end_to_end_db = options.min_sqnr.empty() ? std::nullopt
                                                 : std::optional(options.min_sqnr.back().decibel)},
      isa, ThreadCount(options.jobs), progress, figures);
  // An engine that gives up half-way is no fault of the folder.
  if (!result.ok() && result.status().kind() == ErrorKind::kUnavailable) {
    return NotRun(result.status().ToString());
  }
  return result;
}

// Levels 2 and 3, which need the source.
Status RunSourceLevels(const VerifyOptions& options, const PackedFolder& folder, Isa isa,
                       Progress& progress, VerifyReport& report,
                       std::map<std::string, ModuleVerification>& figures) {
  const Result<Checkpoint> source = Checkpoint::Open(*options.source);
  if (!source.ok()) return source.status();
  const Result<QuantizedModel> model = ReadQuantizedModel(*source);
  if (!model.ok()) return model.status();
  Result<LevelResult> exactness = CheckExactness(folder, *source, *model, nullptr, isa,
                                                 ThreadCount(options.jobs), progress, figures);
  if (!exactness.ok()) return exactness.status();
  report.level(Level::kExactness) = *std::move(exactness);
  for (const auto& [name, figure] : figures) {
    if (figure.exact.has_value()) continue;
    report.level(Level::kGemm) = NotRun("the source does not hold the modules of this folder");
    return {};
  }
  Result<LevelResult> gemm =
      RunGemmLevel(options, folder, *source, isa, progress, figures, report.engine);
  if (!gemm.ok()) return gemm.status();
  report.level(Level::kGemm) = *std::move(gemm);
  return {};
}

}  // namespace

Result<SqnrBar> ParseSqnrBar(std::string_view text) {
  const size_t equals = text.rfind('=');
  const std::string number(equals == std::string_view::npos ? text : text.substr(equals + 1));
  SqnrBar bar;
  if (equals != std::string_view::npos) bar.pattern = text.substr(0, equals);
  char* end = nullptr;
  bar.decibel = std::strtod(number.c_str(), &end);
  const bool whole = !number.empty() && end == number.c_str() + number.size();
  // Not !(…): with NaN no figure would be too low.
  if (whole && bar.decibel >= 0 && bar.decibel <= 200) return bar;
  return Usage("--min-sqnr", "not a number of dB from 0 to 200, or PATTERN=DB")
      .Found(std::string(text));
}

Result<VerifyReport> Verify(const VerifyOptions& given, Progress& progress) {
  VerifyOptions options = given;
  const Result<Isa> isa = ChooseIsa();
  if (!isa.ok()) return isa.status();
  const Result<PackedFolder> folder = PackedFolder::Open(options.folder);
  if (!folder.ok()) return folder.status();

  VerifyReport report;
  if (!options.source) {
    options.source = RecordedSource(*folder);
    report.source_found = options.source.has_value();
  }
  report.folder = options.folder.string();
  report.target = folder->manifest().target;
  report.level(Level::kQuality) = NotRun("no unquantized model was given (--baseline)");
  report.level(Level::kQuality).asked = false;
  report.level(Level::kExactness) = NotRun(kNoSource);
  report.level(Level::kGemm) = NotRun(kNoSource);
  std::map<std::string, ModuleVerification> figures = EmptyFigures(folder->manifest());

  Result<LevelResult> integrity =
      CheckIntegrity(*folder, nullptr, *isa, ThreadCount(options.jobs), progress, figures);
  if (!integrity.ok()) return integrity.status();
  report.level(Level::kIntegrity) = *std::move(integrity);
  if (options.source) {
    report.source = options.source->string();
    Status status = RunSourceLevels(options, *folder, *isa, progress, report, figures);
    // A folder that is damaged so badly that it cannot be unpacked has failed already.
    const bool of_the_folder = !status.ok() && (status.kind() == ErrorKind::kMalformed ||
                                                status.kind() == ErrorKind::kUnsupported);
    const bool damaged = report.level(Level::kIntegrity).state == LevelState::kFailed;
    // Nor need a checkpoint that nobody named be one that can be read.
    if (!status.ok() && (!of_the_folder || !(damaged || report.source_found))) return status;
    if (!status.ok()) {
      const std::string reason =
          (damaged ? "the folder is damaged: "
                   : "the source was found where the manifest says, but cannot be read: ") +
          status.ToString();
      if (report.level(Level::kExactness).reason == kNoSource)
        report.level(Level::kExactness) = NotRun(reason);
      report.level(Level::kGemm) = NotRun(reason);
    }
  }
  for (auto& [name, figure] : figures) report.modules.push_back(std::move(figure));
  return report;
}

}  // namespace prepack
