#include "prepack/measure/measurements.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "prepack/base/hash.h"
#include "prepack/base/status.h"
#include "prepack/base/version.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/json_writer.h"
#include "prepack/io/file.h"
#include "prepack/packed/source_identity.h"

namespace prepack {
namespace {

constexpr std::string_view kReportKind = "prepack-part-report";
constexpr uint64_t kReportVersion = 1;
constexpr std::string_view kMeasured = "measured";
// Of one part. A module takes some kB, and three times its input channels if it has siblings.
constexpr uint64_t kMaxReportBytes = uint64_t{1} << 32;
constexpr std::string_view kHint =
    "Give the files that --part I/N --report FILE wrote, one of each part";

struct NumberWord {
  std::string_view word;
  double value;
};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Reports show the sign of a NaN.
const std::array kNumberWords = {NumberWord{"inf", kInfinity}, NumberWord{"-inf", -kInfinity},
                                 NumberWord{"nan", std::copysign(kNan, 1.0)},
                                 NumberWord{"-nan", std::copysign(kNan, -1.0)}};

constexpr std::array kErrorKinds = {ErrorKind::kCheckFailed, ErrorKind::kUsage,
                                    ErrorKind::kMalformed,   ErrorKind::kSystem,
                                    ErrorKind::kUnsupported, ErrorKind::kUnavailable};

}  // namespace

Json ExactNumber(double value) {
  if (std::isfinite(value)) return value;
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return std::signbit(value) ? "-nan" : "nan";
}

double ReadExactNumber(JsonFields& fields, std::string_view key) {
  const Json* value = fields.Any(key);
  if (value == nullptr) return 0;
  if (value->is_number()) return value->get<double>();
  const auto word = std::ranges::find_if(kNumberWords, [&](const NumberWord& known) {
    return value->is_string() && value->get_ref<const std::string&>() == known.word;
  });
  if (word != kNumberWords.end()) return word->value;
  fields.Keep(Malformed(fields.where(), fmt::format("field \"{}\" is not a number", key))
                  .Found(ShowJson(*value)));
  return 0;
}

Hash128 ReadHash(JsonFields& fields, std::string_view key) {
  const std::string text = fields.Text(key);
  const std::optional<Hash128> hash = ParseHash128(text);
  if (!hash && fields.ok()) {
    fields.Keep(
        Malformed(fields.where(), fmt::format("field \"{}\" is not a hash", key)).Found(text));
  }
  return hash.value_or(Hash128{});
}

Json StatusJson(const Status& status) {
  return {{"kind", static_cast<int>(status.kind())},
          {"where", status.where()},
          {"what", status.what()},
          {"found", status.found()},
          {"expected", status.expected()},
          {"hint", status.hint()},
          {"id", status.id()}};
}

Status ReadStatus(JsonFields fields) {
  const uint64_t number = fields.Uint("kind");
  const auto kind = std::ranges::find(kErrorKinds, static_cast<ErrorKind>(number));
  const std::string where = fields.Text("where");
  const std::string what = fields.Text("what");
  if (kind == kErrorKinds.end() || number > 6) {
    fields.Keep(Malformed(fields.where(), "field \"kind\" is no kind of error")
                    .Found(fmt::format("{}", number)));
  }
  Status status(fields.ok() ? *kind : ErrorKind::kMalformed, where, what);
  status.Found(fields.Text("found")).Expected(fields.Text("expected")).Hint(fields.Text("hint"));
  status = std::move(status).Id(fields.Text("id"));
  return status;
}

IdentityField CommandIdentity(std::string_view command) {
  return {.name = "command",
          .other = "another command, or another version of prepack",
          .value = fmt::format("{} of prepack {}", command, kVersion)};
}

std::string UnitOfModule(std::string_view module) {
  return fmt::format("module {}", module);
}

std::string UnitOfTensor(std::string_view tensor) {
  return fmt::format("tensor {}", tensor);
}

std::string UnitOfFile(std::string_view file) {
  return fmt::format("file {}", file);
}

std::string Measurements::KeyOf(const MeasuredThing& thing) {
  return fmt::format("{} {}", thing.kind, thing.name);
}

bool Measurements::IsOfTheInput(const Status& status) {
  return status.kind() == ErrorKind::kMalformed || status.kind() == ErrorKind::kUnsupported ||
         status.kind() == ErrorKind::kUnavailable;
}

void Measurements::Cut(const std::vector<std::pair<std::string, uint64_t>>& units) {
  if (whole()) return;
  for (const auto& [unit, bytes] : units) all_bytes_ += bytes;
  uint64_t start = 0;
  for (const auto& [unit, bytes] : units) {
    const uint32_t owner = PartOf(start, bytes, all_bytes_, part_.count);
    start += bytes;
    if (owner == part_.index) own_bytes_ += bytes;
    owners_.emplace(unit, owner);
  }
}

void Measurements::Assign(std::string_view unit, std::string_view to) {
  if (!whole()) owners_.emplace(unit, OwnerOf(to));
}

// What no list of units names, such as a tensor that should not be there, is somebody's as well.
uint32_t Measurements::OwnerOf(std::string_view unit) const {
  const auto known = owners_.find(unit);
  if (known != owners_.end()) return known->second;
  return 1 + static_cast<uint32_t>(Xxh3(unit).low % part_.count);
}

uint64_t Measurements::ShareOf(uint64_t bytes) const {
  if (whole()) return bytes;
  if (merged() || all_bytes_ == 0) return 0;
  const double share = static_cast<double>(own_bytes_) / static_cast<double>(all_bytes_);
  return static_cast<uint64_t>(static_cast<double>(bytes) * share);
}

void Measurements::Keep(const MeasuredThing& thing, Json value) {
  const std::lock_guard lock(*mutex_);
  if (makes_notes_) {
    notes_.push_back({std::string(thing.unit), KeyOf(thing), value.dump()});
  } else {
    kept_.insert_or_assign(KeyOf(thing), std::move(value));
  }
}

void Measurements::Recall(std::vector<MeasuredNote> notes) {
  reports_.emplace(part_.index, "the journal of the interrupted run");
  for (MeasuredNote& note : notes) {
    taken_.insert_or_assign(std::move(note.key), std::move(note.value));
  }
}

std::vector<MeasuredNote> Measurements::TakeNotes() {
  const std::lock_guard lock(*mutex_);
  return std::exchange(notes_, {});
}

PartReport Measurements::Report(const PartIdentity& identity) const {
  std::string text;
  JsonWriter json([&](std::string_view piece) { text += piece; });
  json.BeginObject();
  json.MemberText("kind", kReportKind);
  json.MemberNumber("version", kReportVersion);
  json.MemberText("prepack_version", kVersion);
  json.MemberText("part", part_.Text());
  json.Key("identity");
  json.BeginObject();
  for (const IdentityField& field : identity) json.MemberText(field.name, field.value);
  json.EndObject();
  json.Key(kMeasured);
  json.BeginObject();
  for (const auto& [key, value] : kept_) {
    json.Key(key);
    const JsonWriter::Line line(json);
    json.Value(value);
  }
  json.EndObject();
  json.EndObject();
  json.Flush();
  return {.measured = kept_.size(), .text = text + "\n"};
}

std::string Measurements::WhereOf(const MeasuredThing& thing) const {
  const auto report = reports_.find(OwnerOf(thing.unit));
  return fmt::format("{}: {}: {}", report == reports_.end() ? "" : report->second, kMeasured,
                     KeyOf(thing));
}

Json Measurements::Find(const MeasuredThing& thing, Status& wrong) const {
  const auto found = taken_.find(KeyOf(thing));
  if (found == taken_.end()) {
    wrong = Malformed(WhereOf(thing), "the report does not have this")
                .Hint("Make the report of this part again");
    return nullptr;
  }
  Result<Json> json = ParseJsonStrict(found->second, WhereOf(thing));
  if (json.ok()) return *std::move(json);
  wrong = json.status();
  return nullptr;
}

Status Measurements::NoteWrong(Status status) const {
  const std::lock_guard lock(*mutex_);
  if (wrong_.ok()) wrong_ = status;
  return status;
}

Status Measurements::wrong() const {
  const std::lock_guard lock(*mutex_);
  return wrong_;
}

namespace {

// kUsage where the report is of another run.
Status CompareIdentity(const std::string& where, JsonFields fields, const PartIdentity& identity) {
  for (const IdentityField& field : identity) {
    const std::string found = fields.Text(field.name);
    if (!fields.ok()) return {};  // the caller looks at the status
    if (found == field.value) continue;
    return Usage(where, fmt::format("this report comes from {}", field.other))
        .Found(found)
        .Expected(field.value);
  }
  return {};
}

}  // namespace

Status Measurements::ReadReport(const std::filesystem::path& path, const PartIdentity& identity) {
  const std::string where = path.string();
  PREPACK_TRY_ASSIGN(const std::string text, ReadTextFile(path, kMaxReportBytes));
  constexpr JsonLimits kLimits{.max_depth = 16, .max_values = 1'000'000'000};
  std::vector<std::pair<std::string, std::string>> measured;
  const auto keep = [&](const std::string& key, const Json& value) {
    measured.emplace_back(key, value.dump());
  };
  const JsonEntries entries{.of = kMeasured, .visit = keep};
  PREPACK_TRY_ASSIGN(const Json json, ParseJsonStrict(text, where, kLimits, &entries));
  Status status;
  JsonFields fields(json, where, status);
  const std::string kind = fields.Text("kind");
  if (!status.ok() || kind != kReportKind) {
    return Malformed(where, "not the report of a part").Hint(kHint);
  }
  if (fields.Uint("version") != kReportVersion && status.ok()) {
    return Unsupported(where, "the report has another format version than this prepack reads")
        .Expected(fmt::format("{}", kReportVersion));
  }
  fields.Object(kMeasured);
  const std::string part_text = fields.Text("part");
  if (!status.ok()) return status;
  const Result<Part> parsed = ParsePart(part_text);
  if (!parsed.ok()) return Malformed(where, "field \"part\" is not a part").Found(part_text);
  const Part part = *parsed;
  PREPACK_TRY(CompareIdentity(where, fields.In("identity"), identity));
  if (!status.ok()) return status;
  if (reports_.empty()) part_.count = part.count;
  if (part.count != part_.count) {
    return Usage(where, "this report is one of another number of parts")
        .Found(part.Text())
        .Expected(fmt::format("one of {} parts, as {}", part_.count, reports_.begin()->second));
  }
  const auto [known, is_new] = reports_.emplace(part.index, where);
  if (!is_new) {
    return Usage(where, fmt::format("part {} has two reports", part.Text())).Found(known->second);
  }
  for (auto& [key, value] : measured) {
    if (taken_.emplace(key, std::move(value)).second) continue;
    return Malformed(where, "another part has measured this, too").Found(key);
  }
  return {};
}

Result<Measurements> Measurements::Read(std::span<const std::filesystem::path> reports,
                                        const PartIdentity& identity) {
  Measurements merged;
  merged.mode_ = Mode::kMerged;
  for (const std::filesystem::path& report : reports) {
    PREPACK_TRY(merged.ReadReport(report, identity));
  }
  constexpr size_t kShown = 10;
  std::vector<std::string> missing;
  size_t count = 0;
  for (uint32_t index = 1; index <= merged.part_.count; ++index) {
    if (merged.reports_.contains(index)) continue;
    if (++count > kShown) continue;
    missing.push_back(Part{.index = index, .count = merged.part_.count}.Text());
  }
  if (count == 0) return merged;
  return Usage("--merge", "there is no report of some parts")
      .Found(fmt::format("none of {}{}", fmt::join(missing, ", "),
                         count > kShown ? fmt::format(" and {} more", count - kShown) : ""))
      .Hint(kHint);
}

Result<std::vector<std::filesystem::path>> PartReports(
    std::span<const std::filesystem::path> places) {
  std::vector<std::filesystem::path> reports;
  for (const std::filesystem::path& place : places) {
    std::error_code error;
    if (!std::filesystem::is_directory(place, error)) {
      reports.push_back(place);
      continue;
    }
    PREPACK_TRY_ASSIGN(const std::vector<std::string> names, NamesIn(place));
    for (const std::string& name : names) {
      if (!name.starts_with(".") && name.ends_with(".json")) reports.push_back(place / name);
    }
  }
  return reports;
}

std::string CheckpointIdentity(const std::filesystem::path& path) {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(path);
  return checkpoint.ok() ? SourceIdentity(*checkpoint) : checkpoint.status().ToString();
}

}  // namespace prepack
