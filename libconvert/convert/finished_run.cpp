#include "convert/finished_run.h"

#include <fmt/format.h>

#include <string_view>
#include <system_error>
#include <utility>

#include "convert/part_record.h"
#include "io/output_folder.h"

namespace prepack {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kReplace = "--force replaces it";

// A file that was removed or cut since is not worth a whole run to notice.
Status CheckFiles(const fs::path& folder, const Manifest& manifest) {
  for (const auto& [name, record] : manifest.files) {
    std::error_code error;
    const uint64_t bytes = fs::file_size(folder / name, error);
    if (!error && bytes == record.bytes) continue;
    return Malformed((folder / name).string(), "the output is damaged: this file is not as written")
        .Found(error ? error.message() : fmt::format("{} bytes", bytes))
        .Expected(fmt::format("{} bytes", record.bytes))
        .Hint(kReplace);
  }
  return {};
}

// The identity knows the headers of the source, not its numbers.
Status CheckSourceIsOlder(const fs::path& folder, std::string_view manifest_name,
                          const Checkpoint& source) {
  std::error_code error;
  const auto made = fs::last_write_time(folder / manifest_name, error);
  for (const CheckpointFile& file : source.files()) {
    const auto changed = fs::last_write_time(file.file.path(), error);
    if (error || changed <= made) continue;
    return Usage(folder.string(), "it was made before the source was changed")
        .Found(fmt::format("a newer {}", file.file.path().string()))
        .Hint("`prepack verify` tells whether it still fits its source; --force replaces it");
  }
  return {};
}

// What the folder was made by; nothing when it does not say.
Result<std::optional<RunIdentity>> IdentityOfPart(const fs::path& folder, const Part& part) {
  const Result<PartRecord> record = ReadPartRecord(folder);
  if (!record.ok()) return record.status();
  if (record->part != part) return std::optional<RunIdentity>();
  return std::optional(record->identity);
}

}  // namespace

Result<std::optional<Manifest>> FindFinishedRun(const fs::path& folder, const RunIdentity& identity,
                                                const Part& part, const Checkpoint& source) {
  const std::string_view mark = part.IsWhole() ? kManifestName : kPartName;
  std::error_code error;
  if (!fs::exists(folder / mark, error)) return std::optional<Manifest>();
  Result<Manifest> manifest = part.IsWhole() ? ReadManifest(folder) : ReadPartManifest(folder);
  if (!manifest.ok()) return std::move(manifest).status();
  std::optional<RunIdentity> found = manifest->run;
  if (!part.IsWhole()) {
    Result<std::optional<RunIdentity>> of_part = IdentityOfPart(folder, part);
    if (!of_part.ok()) return std::move(of_part).status();
    found = *std::move(of_part);
  }
  if (!found) return std::optional<Manifest>();
  Status status = CheckSameRun(*found, identity, folder.string());
  if (!status.ok()) return std::move(status).Hint(kReplace);
  status = CheckFiles(folder, *manifest);
  if (status.ok()) status = CheckSourceIsOlder(folder, mark, source);
  if (!status.ok()) return status;
  return std::optional(*std::move(manifest));
}

}  // namespace prepack
