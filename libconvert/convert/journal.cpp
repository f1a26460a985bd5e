#include "convert/journal.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/checked.h"
#include "container/json_strict.h"
#include "container/required_fields.h"
#include "io/posix.h"

namespace prepack {
namespace {

// Of a journal of ten million units.
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
  const Json json = {{"unit", unit},
                     {"rounded_scales", finished.rounded_scales},
                     {"outputs", HexOf(finished.outputs)},
                     {"tensors", tensors},
                     {"sources", HexOf(sources)}};
  return JournalLine(json.dump());
}

Status ReadHead(const Json& json, std::string_view where, JournalContents& contents) {
  Result<RunIdentity> identity = ReadIdentity(json, where);
  if (!identity.ok()) return identity.status();
  const Result<std::string> part = StringField(json, "part", where);
  if (!part.ok()) return part.status();
  const Result<Part> parsed = ParsePart(*part);
  if (!parsed.ok()) return parsed.status();
  contents.identity = *std::move(identity);
  contents.part = *parsed;
  return {};
}

Result<std::vector<Hash128>> HashArrayField(const Json& json, std::string_view key,
                                            std::string_view where) {
  const Result<std::vector<std::string>> texts = StringArrayField(json, key, where);
  if (!texts.ok()) return texts.status();
  std::vector<Hash128> hashes;
  for (const std::string& text : *texts) {
    const std::optional<Hash128> hash = ParseHash128(text);
    if (!hash) {
      return Malformed(where, fmt::format("field \"{}\" has something else than a hash", key))
          .Found(Printable(text))
          .Expected("32 hex digits");
    }
    hashes.push_back(*hash);
  }
  return hashes;
}

Result<std::vector<SourceNote>> ReadSources(const Json& json, std::string_view where) {
  const Result<std::vector<uint64_t>> tensors = UintArrayField(json, "tensors", where);
  if (!tensors.ok()) return tensors.status();
  const Result<std::vector<Hash128>> hashes = HashArrayField(json, "sources", where);
  if (!hashes.ok()) return hashes.status();
  if (tensors->size() != hashes->size()) {
    return Malformed(where, "\"tensors\" and \"sources\" differ in length")
        .Found(fmt::format("{} and {}", tensors->size(), hashes->size()));
  }
  std::vector<SourceNote> notes;
  for (size_t i = 0; i < tensors->size(); ++i) notes.push_back({(*tensors)[i], (*hashes)[i]});
  return notes;
}

Status ReadUnit(const Json& json, std::string_view where, JournalContents& contents) {
  const Result<uint64_t> unit = UintField(json, "unit", where);
  if (!unit.ok()) return unit.status();
  const Result<uint64_t> rounded = UintField(json, "rounded_scales", where);
  if (!rounded.ok()) return rounded.status();
  Result<std::vector<Hash128>> outputs = HashArrayField(json, "outputs", where);
  if (!outputs.ok()) return outputs.status();
  Result<std::vector<SourceNote>> sources = ReadSources(json, where);
  if (!sources.ok()) return sources.status();
  contents.units[*unit] = {*rounded, *std::move(outputs), *std::move(sources)};
  return {};
}

// What the disk did not get before the power failed reads as zeros, which no line holds.
bool WasLost(std::string_view line) {
  constexpr std::string_view kZeros("\0\0\0\0\0\0\0\0", 8);
  return line.find(kZeros) != std::string_view::npos;
}

// What a line says, without its hash and its end.
Result<std::string_view> WithoutHash(std::string_view line, std::string_view where) {
  const std::string_view text = line.substr(0, line.rfind(' '));
  if (fmt::format("{}\n", line) == JournalLine(text)) return text;
  return Malformed(where, "the line is not what was written: its hash differs");
}

Status ReadLine(std::string_view line, std::string_view where, bool is_head,
                JournalContents& contents) {
  const Result<std::string_view> text = WithoutHash(line, where);
  if (!text.ok()) return text.status();
  const Result<Json> json = ParseJsonStrict(*text, where);
  if (!json.ok()) return json.status();
  return is_head ? ReadHead(*json, where, contents) : ReadUnit(*json, where, contents);
}

}  // namespace

std::string JournalLine(std::string_view json) {
  return fmt::format("{} {}\n", json, Xxh3Hex(json));
}

Journal::Journal(File file, uint64_t end)
    : file_(std::move(file)), end_(end), mutex_(std::make_unique<std::mutex>()) {}

Result<Journal> Journal::Create(const std::filesystem::path& path, const RunIdentity& identity,
                                const Part& part) {
  const int removed = posix::RemoveTree(path);
  if (removed < 0) return SystemError(path.string(), "cannot remove it", -removed);
  Result<File> file = File::CreateNew(path);
  if (!file.ok()) return file.status();
  const std::string head = HeadLine(identity, part);
  Status status = file->WriteAt(0, std::as_bytes(std::span(head)));
  if (!status.ok()) return status;
  return Journal(*std::move(file), head.size());
}

Result<Journal> Journal::Continue(const std::filesystem::path& path,
                                  const JournalContents& contents) {
  Result<File> file = File::OpenForUpdate(path);
  if (!file.ok()) return file.status();
  // Cuts half a line off: what comes must not be longer than what it replaces to be sound.
  Status status = file->Resize(contents.bytes);
  if (!status.ok()) return status;
  return Journal(*std::move(file), contents.bytes);
}

Status Journal::Append(uint64_t unit, const FinishedUnit& finished) {
  const std::string line = UnitLine(unit, finished);
  const std::lock_guard lock(*mutex_);
  Status status = file_.WriteAt(end_, std::as_bytes(std::span(line)));
  if (status.ok()) end_ += line.size();
  return status;
}

Result<std::optional<JournalContents>> ReadJournal(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::optional<JournalContents>();
  const Result<std::string> text = ReadTextFile(path, kMaxJournalBytes);
  if (!text.ok()) return text.status();

  JournalContents contents;
  for (size_t end = 0; (end = text->find('\n', contents.bytes)) != std::string::npos;) {
    const std::string_view line(text->data() + contents.bytes, end - contents.bytes);
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

}  // namespace prepack
