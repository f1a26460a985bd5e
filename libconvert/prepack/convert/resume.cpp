// The journal of a conversion, and what --resume believes of it. A line counts only after the bytes
// that it describes, in the shard and in the source, have been hashed again: after a power cut a
// line may have reached the disk without its bytes.

#include "prepack/convert/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/hash.h"
#include "prepack/base/parallel.h"
#include "prepack/base/status.h"
#include "prepack/base/version.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/json.h"
#include "prepack/container/json_fields.h"
#include "prepack/container/json_writer.h"
#include "prepack/convert/finish_folder.h"
#include "prepack/convert/merge.h"
#include "prepack/io/file.h"
#include "prepack/io/output_folder.h"
#include "prepack/io/posix.h"
#include "prepack/packed/scheme_json.h"
#include "prepack/packed/source_identity.h"

namespace prepack {
namespace {

std::string OptionsText(const Plan& plan, const PlanOptions& options, uint64_t shard_bytes) {
  std::string text = fmt::format("--target {} --dtype {} --scales {}", plan.target->id,
                                 ActivationDTypeName(plan.activation_dtype),
                                 options.exact_scales ? "exact" : "runtime");
  constexpr std::array kFallbacks = {"keep", "dequantize", "error"};
  text += fmt::format(" --fallback {}", kFallbacks[static_cast<size_t>(options.fallback)]);
  if (options.fuse) text += " --fuse";
  if (options.numa_nodes > 1) text += fmt::format(" --numa {}", options.numa_nodes);
  for (const std::string& name : options.accepted.texts()) text += " --accept " + name;
  for (const SchemeChoice& choice : options.schemes) text += " " + choice.Text();
  return text + fmt::format(", shards of {} bytes", shard_bytes);
}

// What each module becomes, with the fingerprints of the layouts: a build that packs other bytes
// under the same version counts as another tool.
std::string PlanIdentity(const Plan& plan) {
  Xxh3Hasher hasher;
  for (const ModulePlan& module : plan.modules) {
    hasher.Update(fmt::format("{} {}\n", module.linear->module(),
                              module.chosen != nullptr ? module.chosen->id : "kept"));
    if (module.request.weights_desc) {
      hasher.Update(BlockedDescJson(*module.request.weights_desc).dump());
    }
    if (module.chosen != nullptr) hasher.Update(module.chosen->fingerprint);
    for (const PartSpec& part : module.parts) {
      hasher.Update(fmt::format("\n{} {} {}\n", part.name, DTypeName(part.dtype),
                                fmt::join(part.shape, ",")));
    }
  }
  return hasher.HexDigest();
}

}  // namespace

RunIdentity IdentityOf(const Checkpoint& checkpoint, const Plan& plan, const PlanOptions& options,
                       uint64_t shard_bytes) {
  return {.tool = kVersion,
          .source = SourceIdentity(checkpoint),
          .options = OptionsText(plan, options, shard_bytes),
          .plan = PlanIdentity(plan)};
}

namespace {

// The size of a journal of ten million units.
constexpr uint64_t kMaxJournalBytes = 4ULL << 30;

std::string HeadLine(const RunIdentity& identity, const Part& part) {
  Json json = IdentityJson(identity);
  json["part"] = part.Text();
  return JournalLine(json.dump());
}

std::vector<std::string> HexOf(const std::vector<Hash128>& hashes) {
  std::vector<std::string> texts;
  texts.reserve(hashes.size());
  for (const Hash128& hash : hashes) texts.push_back(hash.Hex());
  return texts;
}

std::string UnitLine(uint64_t unit, const FinishedUnit& finished) {
  std::vector<uint64_t> tensors;
  std::vector<Hash128> sources;
  for (const SourceNote& note : finished.sources) {
    tensors.push_back(note.tensor);
    sources.push_back(note.hash);
  }
  Json json = {{"unit", unit},
               {"rounded_scales", finished.rounded_scales},
               {"outputs", HexOf(finished.outputs)},
               {"tensors", tensors},
               {"sources", HexOf(sources)}};
  if (!finished.details.empty()) json["details"] = Json::parse(finished.details);
  return JournalLine(json.dump());
}

Status ReadHead(const Json& json, std::string_view where, JournalContents& contents) {
  Status status;
  JsonFields fields(json, std::string(where), status);
  const std::string part = fields.Text("part");
  contents.identity = fields.Take(ReadIdentity(json, where));
  contents.part = fields.Take(ParsePart(part));
  return status;
}

std::vector<Hash128> ReadHashes(JsonFields& fields, std::string_view key) {
  std::vector<Hash128> hashes;
  for (const std::string& text : fields.Texts(key)) {
    const std::optional<Hash128> hash = ParseHash128(text);
    if (!hash) {
      fields.Keep(Malformed(fields.where(),
                            fmt::format("field \"{}\" contains an entry that is not a hash", key))
                      .Found(Printable(text))
                      .Expected("32 hex digits"));
      return hashes;
    }
    hashes.push_back(*hash);
  }
  return hashes;
}

std::vector<SourceNote> ReadSources(JsonFields& fields) {
  const std::vector<uint64_t> tensors = fields.Uints("tensors");
  const std::vector<Hash128> hashes = ReadHashes(fields, "sources");
  std::vector<SourceNote> notes;
  if (tensors.size() != hashes.size()) {
    fields.Keep(Malformed(fields.where(), "\"tensors\" and \"sources\" differ in length")
                    .Found(fmt::format("{} and {}", tensors.size(), hashes.size())));
    return notes;
  }
  for (size_t i = 0; i < tensors.size(); ++i) notes.push_back({tensors[i], hashes[i]});
  return notes;
}

Status ReadUnit(const Json& json, std::string_view where, JournalContents& contents) {
  Status status;
  JsonFields fields(json, std::string(where), status);
  const uint64_t unit = fields.Uint("unit");
  FinishedUnit finished{fields.Uint("rounded_scales"), ReadHashes(fields, "outputs"),
                        ReadSources(fields), ""};
  if (fields.Has("details")) {
    if (const Json* details = fields.Object("details"); details != nullptr) {
      finished.details = details->dump();
    }
  }
  if (status.ok()) contents.units[unit] = std::move(finished);
  return status;
}

std::string NoteLine(const MeasuredNote& note) {
  return JournalLine(fmt::format(R"({{"measured":{},"unit":{},"value":{}}})", Json(note.key).dump(),
                                 Json(note.unit).dump(), note.value));
}

Status ReadNote(const Json& json, std::string_view where, JournalContents& contents) {
  Status status;
  JsonFields fields(json, std::string(where), status);
  MeasuredNote note{fields.Text("unit"), fields.Text("measured"), ""};
  if (const Json* value = fields.Object("value"); value != nullptr) note.value = value->dump();
  if (status.ok()) contents.notes.push_back(std::move(note));
  return status;
}

// Bytes that did not reach the disk before a power failure read as zeros, which no line contains.
bool WasLost(std::string_view line) {
  constexpr std::string_view kZeros("\0\0\0\0\0\0\0\0", 8);
  return line.find(kZeros) != std::string_view::npos;
}

// The content of a line, without its hash and its end.
Result<std::string_view> WithoutHash(std::string_view line, std::string_view where) {
  const std::string_view text = line.substr(0, line.rfind(' '));
  if (fmt::format("{}\n", line) == JournalLine(text)) return text;
  return Malformed(where, "the line is not what was written: its hash differs");
}

Status ReadLine(std::string_view line, std::string_view where, bool is_head,
                JournalContents& contents) {
  PREPACK_TRY_ASSIGN(const std::string_view text, WithoutHash(line, where));
  PREPACK_TRY_ASSIGN(const Json json, ParseJsonStrict(text, where));
  if (is_head) return ReadHead(json, where, contents);
  return json.contains("measured") ? ReadNote(json, where, contents)
                                   : ReadUnit(json, where, contents);
}

}  // namespace

std::string JournalLine(std::string_view json) {
  return fmt::format("{} {}\n", json, Xxh3Hex(json));
}

Journal::Journal(File file, uint64_t end)
    : file_(std::move(file)), end_(end), mutex_(std::make_unique<std::mutex>()) {}

Result<Journal> Journal::Create(const std::filesystem::path& path, const RunIdentity& identity,
                                const Part& part) {
  PREPACK_TRY(RemoveIfThere(path));
  PREPACK_TRY_ASSIGN(File file, File::CreateNew(path));
  const std::string head = HeadLine(identity, part);
  PREPACK_TRY(file.WriteAt(0, std::as_bytes(std::span(head))));
  return Journal(std::move(file), head.size());
}

Result<Journal> Journal::Continue(const std::filesystem::path& path,
                                  const JournalContents& contents) {
  PREPACK_TRY_ASSIGN(File file, File::OpenForUpdate(path));
  // Cut off an incomplete last line: new lines overwrite it, and the rest of a longer one would
  // remain after them.
  PREPACK_TRY(file.Resize(contents.bytes));
  return Journal(std::move(file), contents.bytes);
}

Status Journal::Append(uint64_t unit, const FinishedUnit& finished) {
  return AppendText(UnitLine(unit, finished));
}

Status Journal::Append(const std::vector<MeasuredNote>& notes) {
  std::string lines;
  for (const MeasuredNote& note : notes) lines += NoteLine(note);
  return AppendText(lines);
}

Status Journal::AppendText(const std::string& text) {
  const std::lock_guard lock(*mutex_);
  Status status = file_.WriteAt(end_, std::as_bytes(std::span(text)));
  if (status.ok()) end_ += text.size();
  return status;
}

Result<std::optional<JournalContents>> ReadJournal(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::optional<JournalContents>();
  PREPACK_TRY_ASSIGN(const std::string text, ReadTextFile(path, kMaxJournalBytes));

  JournalContents contents;
  for (size_t end = 0; (end = text.find('\n', contents.bytes)) != std::string::npos;) {
    const std::string_view line(text.data() + contents.bytes, end - contents.bytes);
    if (WasLost(line)) break;
    const std::string where = fmt::format("{}: byte {}", path.string(), contents.bytes);
    Status status = ReadLine(line, where, contents.bytes == 0, contents);
    if (!status.ok()) {
      return std::move(status).Hint("Run without --resume to start from the beginning");
    }
    contents.bytes = end + 1;
  }
  if (contents.bytes == 0) return std::optional<JournalContents>();
  return std::optional(std::move(contents));
}

namespace fs = std::filesystem;
namespace {

constexpr std::string_view kReplace = "--force replaces it";

// Checks names and sizes first, so that a file that was removed or cut is noticed before a whole
// run.
Status CheckFiles(const fs::path& folder, const Manifest& manifest) {
  for (const auto& [name, record] : manifest.files) {
    PREPACK_TRY_ASSIGN(const std::optional<struct stat> file, LookAt(folder / name));
    const bool is_there = file.has_value();
    const uint64_t bytes = is_there ? static_cast<uint64_t>(file->st_size) : 0;
    if (is_there && bytes == record.bytes) continue;
    return Malformed((folder / name).string(),
                     "the output is damaged: this file is not what was written")
        .Found(is_there ? fmt::format("{} bytes", bytes) : "no such file")
        .Expected(fmt::format("{} bytes", record.bytes))
        .Hint(kReplace);
  }
  return {};
}

// The first line that differs, if any: `now` has all names of `then`.
Status CheckSameTensors(const SourceTensorLines& then, const SourceTensorLines& now,
                        std::string_view where) {
  for (const auto& [name, line] : then) {
    const auto found = now.find(name);
    if (found != now.end() && found->second == line) continue;
    return AnotherSource(where, fmt::format("tensor {} {}", Printable(name), Printable(line)),
                         found == now.end() ? "no such tensor" : found->second);
  }
  return {};
}

// The identity covers the headers of the source but not its numbers, so these are read.
Status CheckWholeSource(const std::string& where, const Manifest& manifest,
                        const Checkpoint& source, unsigned threads, Progress& progress) {
  std::vector<const StoredTensor*> tensors;
  for (const StoredTensor& tensor : source.tensors()) tensors.push_back(&tensor);
  TensorHashes hashes(source);
  PREPACK_TRY(HashTensorsAsStage(std::move(tensors), threads, progress, hashes));
  const std::string now = SourceFingerprint(hashes);
  if (now == manifest.source_fingerprint) return {};
  return AnotherSource(
      where, fmt::format("weights with the fingerprint {}", manifest.source_fingerprint), now);
}

// The same for the tensors that a part has read.
Status CheckSourceOfPart(const std::string& where, const PartRecord& record,
                         const Checkpoint& source, unsigned threads, Progress& progress) {
  SourceTensorLines then = record.source_tensors;
  then.insert(record.witnessed_tensors.begin(), record.witnessed_tensors.end());
  std::vector<const StoredTensor*> tensors;
  for (const auto& [name, line] : then) {
    if (const StoredTensor* tensor = source.Find(name); tensor != nullptr)
      tensors.push_back(tensor);
  }
  TensorHashes hashes(source);
  PREPACK_TRY(HashTensorsAsStage(std::move(tensors), threads, progress, hashes));
  return CheckSameTensors(then, SourceLines(hashes), where);
}

// The source must still be what the folder was made from.
Status CheckSource(const std::string& where, const Manifest& manifest,
                   const std::optional<PartRecord>& record, const Checkpoint& source,
                   unsigned threads, Progress& progress) {
  PREPACK_TRY_ASSIGN(const FileHashes files, HashSideFiles(source, manifest.target, progress));
  Status status =
      CheckSameFiles(record ? record->source_files : SideFilesOf(manifest), files, where);
  // Of what has been consumed, the headers must do, which are part of the identity.
  if (status.ok() && source.IsHere()) {
    status = record ? CheckSourceOfPart(where, *record, source, threads, progress)
                    : CheckWholeSource(where, manifest, source, threads, progress);
  }
  return status.ok() ? status : std::move(status).Hint(kReplace);
}

}  // namespace

Result<std::optional<Manifest>> FindFinishedRun(const fs::path& folder, const RunIdentity& identity,
                                                const Part& part, const Checkpoint& source,
                                                unsigned threads, Progress& progress) {
  const std::string_view mark = part.IsWhole() ? kManifestName : kPartName;
  PREPACK_TRY_ASSIGN(const std::optional<struct stat> marked, LookAt(folder / mark));
  if (!marked) return std::optional<Manifest>();
  PREPACK_TRY_ASSIGN(Manifest manifest,
                     part.IsWhole() ? ReadManifest(folder) : ReadPartManifest(folder));
  std::optional<RunIdentity> found = manifest.run;
  std::optional<PartRecord> record;
  if (!part.IsWhole()) {
    PREPACK_TRY_ASSIGN(PartRecord of_part, ReadPartRecord(folder));
    found = of_part.part == part ? std::optional(of_part.identity) : std::nullopt;
    record = std::move(of_part);
  }
  if (!found) return std::optional<Manifest>();
  Status status = CheckSameRun(*found, identity, folder.string());
  if (!status.ok()) return std::move(status).Hint(kReplace);
  status = CheckFiles(folder, manifest);
  if (status.ok()) {
    status = CheckSource(folder.string(), manifest, record, source, threads, progress);
  }
  if (!status.ok()) return status;
  return std::optional(std::move(manifest));
}

namespace {

constexpr std::string_view kEarlierRun = "the interrupted run that --resume would continue";
constexpr std::string_view kBeginAnew = "Run without --resume to start from the beginning";

// Whether these notes are about tensors that the unit is made from.
bool AreAbout(const Checkpoint& checkpoint, const std::vector<const StoredTensor*>& sources,
              const std::vector<SourceNote>& notes) {
  return std::ranges::all_of(notes, [&](const SourceNote& note) {
    return note.tensor < checkpoint.tensors().size() &&
           std::ranges::count(sources, &checkpoint.tensors()[note.tensor]) != 0;
  });
}

// Drops units whose notes are about other tensors, or leave out a tensor that no other unit notes:
// the tensor of stacked experts is noted with only one of them, which may be unfinished.
void DropUnknownSources(const Checkpoint& checkpoint, SourcesOfUnit sources_of,
                        FinishedUnits& finished) {
  std::erase_if(finished, [&](const auto& unit) {
    return !AreAbout(checkpoint, sources_of(unit.first), unit.second.sources);
  });
  for (bool dropped = true; dropped;) {  // dropping a unit also drops its notes
    std::vector<bool> noted(checkpoint.tensors().size());
    for (const auto& [unit, done] : finished) {
      for (const SourceNote& note : done.sources) noted[note.tensor] = true;
    }
    dropped = std::erase_if(finished, [&](const auto& unit) {
                const auto sources = sources_of(unit.first);
                return !std::ranges::all_of(sources, [&](const StoredTensor* tensor) {
                  return noted[NumberOf(checkpoint, *tensor)];
                });
              }) != 0;
  }
}

}  // namespace

Result<std::optional<JournalContents>> FindEarlierRun(const std::filesystem::path& path,
                                                      const RunIdentity& identity,
                                                      const Part& part) {
  Result<std::optional<JournalContents>> contents = ReadJournal(path);
  if (!contents.ok() || !contents->has_value()) return contents;
  const JournalContents& found = **contents;
  Status status = CheckSameRun(found.identity, identity, kEarlierRun);
  if (status.ok() && found.part != part) {
    status = Usage(kEarlierRun, "it belongs to another part")
                 .Found(found.part.Text())
                 .Expected(part.Text());
  }
  if (status.ok()) return contents;
  return std::move(status).Hint(kBeginAnew);
}

Status RemoveAllBut(const std::filesystem::path& folder, const std::vector<std::string>& kept) {
  PREPACK_TRY_ASSIGN(const std::vector<std::string> names, NamesIn(folder));
  for (const std::string& name : names) {
    if (std::ranges::find(kept, name) != kept.end()) continue;
    const int result = posix::RemoveTree(folder / name);
    if (result < 0) {
      return SystemError((folder / name).string(),
                         "cannot remove what an interrupted run left behind", -result);
    }
  }
  return {};
}

Status DropUnfinished(UnitIsInPlace is_in_place, unsigned threads, FinishedUnits& finished) {
  std::vector<FinishedUnits::iterator> units;
  for (auto it = finished.begin(); it != finished.end(); ++it) units.push_back(it);
  std::vector<uint8_t> in_place(units.size(), 0);  // not bool: threads write neighbours
  PREPACK_TRY(ParallelFor(units.size(), threads, [&](size_t i, unsigned) {
    PREPACK_TRY_ASSIGN(const bool found, is_in_place(units[i]->first, units[i]->second));
    in_place[i] = found ? 1 : 0;
    return Status();
  }));
  for (size_t i = 0; i < units.size(); ++i) {
    if (in_place[i] == 0) finished.erase(units[i]);
  }
  return {};
}

Status CheckSources(const Checkpoint& checkpoint, SourcesOfUnit sources_of, unsigned threads,
                    Progress& progress, FinishedUnits& finished) {
  DropUnknownSources(checkpoint, sources_of, finished);
  std::vector<SourceNote> notes;
  std::set<const StoredTensor*> tensors;
  for (const auto& [unit, done] : finished) {
    notes.insert(notes.end(), done.sources.begin(), done.sources.end());
  }
  // What has been consumed cannot be read again. It was flushed before, and so was the journal; its
  // headers are those of this run.
  std::erase_if(notes, [&](const SourceNote& note) {
    return !checkpoint.IsHere(checkpoint.tensors()[note.tensor]);
  });
  for (const SourceNote& note : notes) tensors.insert(&checkpoint.tensors()[note.tensor]);
  TensorHashes hashes(checkpoint);
  PREPACK_TRY(HashTensorsAsStage({tensors.begin(), tensors.end()}, threads, progress, hashes));
  for (const SourceNote& note : notes) {
    const StoredTensor& tensor = checkpoint.tensors()[note.tensor];
    const Hash128 now = hashes.Of(tensor).value_or(Hash128());
    if (now == note.hash) continue;
    return AnotherSource(kEarlierRun,
                         fmt::format("tensor {} with the hash {}", tensor.name, note.hash.Hex()),
                         now.Hex())
        .Hint(kBeginAnew);
  }
  return {};
}

}  // namespace prepack
