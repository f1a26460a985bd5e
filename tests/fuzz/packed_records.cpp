// What a packed folder, an unfinished conversion and a part say of themselves. A manifest that is
// accepted is written and read back as it is, and each of its modules can be opened, or is refused;
// a journal that is accepted can be continued; a part's record that is accepted stays as it is when
// it is written.
//
// Input: which of them, then its text. The hashes that end a manifest and the lines of a journal
// are put behind them here.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "fuzz/fuzz_target.h"
#include "fuzz/scratch_folder.h"
#include "prepack/base/hash.h"
#include "prepack/convert/merge.h"
#include "prepack/convert/resume.h"
#include "prepack/io/output_folder.h"
#include "prepack/packed/folder.h"
#include "prepack/packed/manifest.h"

namespace prepack::fuzz {
namespace {

constexpr const char* kJournal = "journal";

const ScratchFolder& Folder() {
  static const ScratchFolder folder;
  return folder;
}

std::string WithHash(std::string_view text) {
  return fmt::format("{}{}{}\"\n}}\n", text, kManifestHashPrefix, Xxh3Hex(text));
}

void OpenModules(const PackedFolder& folder) {
  for (const auto& [name, record] : folder.manifest().modules) {
    const Result<PackedModule> module = PackedModule::Open(folder, name, record);
    DemandGoodError(module.status());
  }
}

void CheckManifest(std::string_view text) {
  Folder().Write(kManifestName, WithHash(text));
  const Result<Manifest> manifest = ReadManifest(Folder().path());
  if (!manifest.ok()) return DemandGoodError(manifest.status());
  const std::string written = ManifestText(*manifest);
  Folder().Write(kManifestName, written);
  const Result<Manifest> again = ReadManifest(Folder().path());
  Demand(again.ok(), "a manifest that was read can be written and read again",
         again.status().ToString());
  Demand(ManifestText(*again) == written, "a manifest stays as it is");
  const Result<PackedFolder> folder = PackedFolder::Open(Folder().path());
  if (!folder.ok()) return DemandGoodError(folder.status());
  OpenModules(*folder);
}

// What follows the last end of a line stays as it is.
std::string WithHashedLines(std::string_view text) {
  std::string lines;
  for (size_t end = 0; (end = text.find('\n')) != std::string_view::npos;) {
    lines += JournalLine(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines.append(text);
}

void CheckJournal(std::string_view text) {
  Folder().Write(kJournal, WithHashedLines(text));
  const auto path = Folder() / kJournal;
  const Result<std::optional<JournalContents>> found = ReadJournal(path);
  if (!found.ok()) {
    // What is no part is the user's mistake on the command line, and the journal's here.
    Demand(!found.status().what().empty(), "an error says what");
    return;
  }
  if (!found->has_value()) return;
  const JournalContents& contents = **found;
  Result<Journal> journal = Journal::Continue(path, contents);
  Demand(journal.ok(), "a journal can be continued", journal.status().ToString());
  Demand(journal->Append(7, {.rounded_scales = 1, .outputs = {Xxh3("a")}, .sources = {}}).ok(),
         "a journal can be added to");
  const Result<std::optional<JournalContents>> again = ReadJournal(path);
  Demand(again.ok() && again->has_value(), "it can then be read", again.status().ToString());
  Demand((*again)->identity == contents.identity && (*again)->part == contents.part,
         "its head stays");
  FinishedUnits units = contents.units;
  units[7] = {};
  Demand((*again)->units.size() == units.size(), "its units stay");
  Demand((*again)->units.at(7).outputs == std::vector{Xxh3("a")}, "the new unit is there");
}

void CheckPart(std::string_view text) {
  Folder().Write(kPartName, text);
  const Result<PartRecord> record = ReadPartRecord(Folder().path());
  if (!record.ok()) return DemandGoodError(record.status());
  Folder().Remove(kPartName);
  Folder().Remove("prepack-part-manifest.json");
  const Manifest manifest;
  const OwnRecords records(manifest);
  const Status written = WritePartRecord(Folder().path(), *record, manifest, records);
  Demand(written.ok(), "a part that was read can be written", written.ToString());
  const Result<PartRecord> again = ReadPartRecord(Folder().path());
  Demand(again.ok(), "and read again", again.status().ToString());
  Demand(again->identity == record->identity && again->part == record->part, "its head stays");
  Demand(again->source_config == record->source_config, "so does the config");
  Demand(again->source_tensors == record->source_tensors, "so do the tensors");
  Demand(again->side_files == record->side_files, "so do the side files");
}

using Check = void (*)(std::string_view text);
constexpr Check kChecks[] = {CheckManifest, CheckJournal, CheckPart};

}  // namespace
}  // namespace prepack::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  prepack::fuzz::Input input(data, size);
  const auto check = input.OneOf(prepack::fuzz::kChecks);
  check(input.Text());
  return 0;
}
