#include "prepack/verify/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "prepack/base/hash.h"
#include "prepack/base/isa.h"
#include "prepack/io/file.h"
#include "prepack/io/output_folder.h"
#include "prepack/measure/measurements.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/level_pass.h"
#include "prepack/verify/measured.h"

namespace prepack {
namespace {

// Much larger than any manifest.
constexpr uint64_t kMostManifest = uint64_t{1} << 34;

// Hash of the manifest, and of what files there are.
Result<std::string> FolderIdentity(const PackedFolder& folder) {
  PREPACK_TRY_ASSIGN(const std::string text,
                     ReadTextFile(folder.path() / kManifestName, kMostManifest));
  Xxh3Hasher hasher;
  hasher.Update(text);
  for (const auto& [name, record] : folder.manifest().files) {
    const File* file = folder.FindFile(name);
    const uint64_t bytes = file == nullptr ? 0 : file->size();
    hasher.Update(fmt::format("\n{} {} {}", name, file != nullptr, bytes));
  }
  return hasher.HexDigest();
}

std::string IdentityOf(const std::optional<std::filesystem::path>& checkpoint) {
  return checkpoint ? CheckpointIdentity(*checkpoint) : "none";
}

// What decides which values are measured; bars and --strict judge them later.
std::string MeasuringOptions(const VerifyOptions& options) {
  std::string text = fmt::format("--engine {}", EngineChoiceName(options.engine));
  for (const Level level : kLevels) {
    if (std::ranges::count(options.skip, level) != 0) {
      text += fmt::format(" --skip {}", LevelName(level));
    }
  }
  if (options.repack) text += " --repack";
  if (options.sampled_weights == UINT64_MAX) text += " --all-channels";
  if (options.sample) {
    text += fmt::format(" --sample {} --seed {}", options.sample->fraction, options.sample->seed);
  }
  return text;
}

Result<PartIdentity> IdentityOfVerification(const VerifyOptions& options,
                                            const PackedFolder& folder) {
  PREPACK_TRY_ASSIGN(std::string of_folder, FolderIdentity(folder));
  return PartIdentity{
      CommandIdentity("verify"),
      {.name = "folder",
       .other = "another packed folder, or one that has changed",
       .value = std::move(of_folder)},
      {.name = "source",
       .other = "another source, or one that has changed",
       .value = IdentityOf(options.source ? options.source : RecordedSource(folder))},
      {.name = "baseline",
       .other = "another baseline, or one that has changed",
       .value = IdentityOf(options.baseline)},
      {.name = "activations",
       .other = "other recorded activations",
       .value = IdentityOf(options.activations)},
      {.name = "options", .other = "other options", .value = MeasuringOptions(options)}};
}

}  // namespace

Result<PartReport> VerifyPart(const VerifyOptions& options, const Part& part, Progress& progress) {
  PREPACK_TRY(ChooseIsa().status());
  PREPACK_TRY_ASSIGN(const PackedFolder folder, PackedFolder::Open(options.folder));
  PREPACK_TRY_ASSIGN(const PartIdentity identity, IdentityOfVerification(options, folder));
  Measurements measured(part);
  const Status status = VerifyWith(options, folder, measured, progress).status();
  // What is wrong with the input stops the merge at the same place, with the same error or, if
  // another part found damage before, with a verdict.
  if (!status.ok() && !IsOfTheCheckpoints(status)) return status;
  return measured.Report(identity);
}

Result<VerifyReport> MergeVerification(const VerifyOptions& options,
                                       std::span<const std::filesystem::path> reports,
                                       Progress& progress) {
  PREPACK_TRY(ChooseIsa().status());
  PREPACK_TRY_ASSIGN(const PackedFolder folder, PackedFolder::Open(options.folder));
  PREPACK_TRY_ASSIGN(const PartIdentity identity, IdentityOfVerification(options, folder));
  PREPACK_TRY_ASSIGN(Measurements measured, Measurements::Read(reports, identity));
  Result<VerifyReport> report = VerifyWith(options, folder, measured, progress);
  PREPACK_TRY(measured.wrong());
  return report;
}

}  // namespace prepack
