#include "convert/finished_run.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "convert/part_record.h"
#include "io/look.h"
#include "io/output_folder.h"

namespace prepack {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kReplace = "--force replaces it";

// A file that was removed or cut since is not worth a whole run to notice.
Status CheckFiles(const fs::path& folder, const Manifest& manifest) {
  for (const auto& [name, record] : manifest.files) {
    const Result<std::optional<struct stat>> file = LookAt(folder / name);
    if (!file.ok()) return file.status();
    const bool is_there = file->has_value();
    const uint64_t bytes = is_there ? static_cast<uint64_t>((*file)->st_size) : 0;
    if (is_there && bytes == record.bytes) continue;
    return Malformed((folder / name).string(), "the output is damaged: this file is not as written")
        .Found(is_there ? fmt::format("{} bytes", bytes) : "no such file")
        .Expected(fmt::format("{} bytes", record.bytes))
        .Hint(kReplace);
  }
  return {};
}

// Of a file that is there.
Result<std::optional<timespec>> TimeOfChange(const fs::path& path) {
  const Result<std::optional<struct stat>> file = LookAt(path);
  if (!file.ok()) return file.status();
  return *file ? std::optional((*file)->st_mtim) : std::nullopt;
}

bool IsLater(const timespec& a, const timespec& b) {
  return std::pair(a.tv_sec, a.tv_nsec) > std::pair(b.tv_sec, b.tv_nsec);
}

// The identity knows the headers of the source, not its numbers.
Status CheckSourceIsOlder(const fs::path& folder, std::string_view manifest_name,
                          const Checkpoint& source) {
  const Result<std::optional<timespec>> made = TimeOfChange(folder / manifest_name);
  if (!made.ok()) return made.status();
  for (const CheckpointFile& file : source.files()) {
    const Result<std::optional<timespec>> changed = TimeOfChange(file.file.path());
    if (!changed.ok()) return changed.status();
    if (!*made || !*changed || !IsLater(**changed, **made)) continue;
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
  const Result<std::optional<struct stat>> marked = LookAt(folder / mark);
  if (!marked.ok()) return marked.status();
  if (!*marked) return std::optional<Manifest>();
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
