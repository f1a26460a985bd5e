#include "convert/part_record.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "container/json_strict.h"
#include "container/json_writer.h"
#include "container/required_fields.h"
#include "io/file.h"
#include "io/output_folder.h"

namespace prepack {
namespace {

constexpr std::string_view kPartManifestName = "prepack-part-manifest.json";

Json RecordJson(const PartRecord& record) {
  return {{"part", record.part.Text()},
          {"run", IdentityJson(record.identity)},
          {"source_config", record.source_config},
          {"all_source_tensors", record.all_source_tensors},
          {"source_tensors", record.source_tensors},
          {"witnessed_tensors", record.witnessed_tensors},
          {"side_files", record.side_files},
          {"source_files", record.source_files}};
}

Status ReadLists(const Json& json, std::string_view where, PartRecord& record) {
  Result<SourceTensorLines> tensors = StringMapField(json, "source_tensors", where);
  if (!tensors.ok()) return tensors.status();
  Result<SourceTensorLines> witnessed = StringMapField(json, "witnessed_tensors", where);
  if (!witnessed.ok()) return witnessed.status();
  Result<FileHashes> of_source = StringMapField(json, "source_files", where);
  if (!of_source.ok()) return of_source.status();
  Result<std::vector<std::string>> files = StringArrayField(json, "side_files", where);
  if (!files.ok()) return files.status();
  for (const std::string& file : *files) {
    if (IsPlainFileName(file)) continue;
    return Malformed(where, "\"side_files\" has something else than a plain file name").Found(file);
  }
  record.source_tensors = *std::move(tensors);
  record.witnessed_tensors = *std::move(witnessed);
  record.side_files = *std::move(files);
  record.source_files = *std::move(of_source);
  return {};
}

Status ReadHead(const Json& json, std::string_view where, PartRecord& record) {
  const Result<std::string> part = StringField(json, "part", where);
  if (!part.ok()) return part.status();
  const Result<Part> parsed = ParsePart(*part);
  if (!parsed.ok()) return Malformed(where, "field \"part\" is no part").Found(*part);
  const Result<const Json*> run = ObjectField(json, "run", where);
  if (!run.ok()) return run.status();
  Result<RunIdentity> identity = ReadIdentity(**run, where);
  if (!identity.ok()) return identity.status();
  Result<std::string> config = StringField(json, "source_config", where);
  if (!config.ok()) return config.status();
  const Result<Json> parsed_config =
      ParseJsonStrict(*config, fmt::format("{}: source_config", where), {.python_numbers = true});
  if (!parsed_config.ok()) return parsed_config.status();
  if (!parsed_config->is_object()) return Malformed(where, "field \"source_config\" is no object");
  const Result<uint64_t> all = UintField(json, "all_source_tensors", where);
  if (!all.ok()) return all.status();
  record.part = *parsed;
  record.identity = *std::move(identity);
  record.source_config = *std::move(config);
  record.all_source_tensors = *all;
  return {};
}

}  // namespace

Status WritePartRecord(const std::filesystem::path& folder, const PartRecord& record,
                       const Manifest& manifest, const ManifestRecords& records) {
  Status status = WriteManifest(folder / kPartManifestName, manifest, records);
  if (!status.ok()) return status;
  return WriteTextFile(folder / kPartName, PythonJsonText(RecordJson(record)));
}

Result<PartRecord> ReadPartRecord(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kPartName;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return Usage(folder.string(), fmt::format("this is no part: it has no {}", kPartName))
        .Hint("`prepack convert --part I/N` makes one");
  }
  const Result<std::string> text = ReadTextFile(path, kMaxManifestBytes);
  if (!text.ok()) return text.status();
  const std::string where = path.string();
  const Result<Json> json = ParseJsonStrict(*text, where, {.python_numbers = true});
  if (!json.ok()) return json.status();
  PartRecord record;
  for (const auto read : {ReadHead, ReadLists}) {
    if (Status status = read(*json, where, record); !status.ok()) return status;
  }
  return record;
}

Result<Manifest> ReadPartManifest(const std::filesystem::path& folder) {
  return ReadManifestFile(folder / kPartManifestName);
}

}  // namespace prepack
