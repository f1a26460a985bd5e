// Writes prepack.json piece by piece: the manifest of tens of thousands of modules would take half
// a gigabyte as a DOM. Its last member is the hash of the text before it.

#include "prepack/packed/manifest.h"

#include <fmt/format.h>

#include "prepack/base/hash.h"
#include "prepack/base/status.h"
#include "prepack/container/json_writer.h"
#include "prepack/io/file.h"
#include "prepack/layouts/table.h"
#include "prepack/packed/scheme_json.h"

namespace prepack {
namespace {

void WriteTensor(const TensorRecord& tensor, JsonWriter& json) {
  json.BeginObject();
  json.MemberText("tensor", tensor.tensor);
  json.MemberText("file", tensor.file);
  json.MemberNumber("offset", tensor.offset);
  json.MemberText("dtype", DTypeName(tensor.dtype));
  json.Member("shape", tensor.shape);
  json.MemberText("xxh3_128", tensor.xxh3_128);
  json.EndObject();
}

void WriteFused(const FusedMembers& members, JsonWriter& json) {
  json.Key("fused");
  json.BeginArray();
  for (const FusedMember& member : members) {
    json.BeginObject();
    json.MemberText("module", member.module);
    json.MemberNumber("outputs", member.n);
    json.EndObject();
  }
  json.EndArray();
}

// There may be a hundred thousand.
void WriteModule(const ModuleRecord& module, JsonWriter& json) {
  const JsonWriter::Line line(json);
  json.BeginObject();
  json.MemberText("layout", module.layout);
  json.MemberText("scheme", SchemeName(module.scheme));
  json.Member("shape", {module.n, module.k});
  json.MemberNumber("group_size", module.scheme.group_size);
  json.Member("symmetric", module.scheme.symmetric);
  json.Member("numbers", SchemeJson(module.scheme));
  if (module.source_activations) {
    json.Member("source_activations", ActivationsJson(*module.source_activations));
  }
  json.MemberText("stored_scale_dtype", DTypeName(module.stored_scale_dtype));
  json.MemberText("scale_rounding", module.scale_rounding);
  json.MemberNumber("rounded_scales", module.rounded_scales);
  json.MemberText("source_xxh3_128", module.source_xxh3_128);
  if (module.experts > 0) json.MemberNumber("experts", module.experts);
  if (module.act_order) json.Member("act_order", true);
  if (!module.fused.empty()) WriteFused(module.fused, json);
  json.Key("parts");
  json.BeginObject();
  for (const auto& [name, part] : module.parts) {
    json.Key(name);
    WriteTensor(part, json);
  }
  json.EndObject();
  if (module.weights_desc) json.Member("memory_descriptor", BlockedDescJson(*module.weights_desc));
  if (module.onednn) json.Member("onednn", OneDnnOriginJson(*module.onednn));
  json.EndObject();
}

void WriteHead(const Manifest& manifest, JsonWriter& json) {
  json.MemberNumber("manifest_version", kManifestVersion);
  json.MemberText("prepack_version", manifest.prepack_version);
  json.MemberText("target", manifest.target);
  json.MemberText("activation_dtype", DTypeName(manifest.activation_dtype));
  json.MemberText("scales", manifest.exact_scales ? "exact" : "runtime");
  if (!manifest.accepted.empty()) json.Member("accepted", manifest.accepted.texts());
  if (manifest.run) json.Member("run", IdentityJson(*manifest.run));
  json.Key("source");
  json.BeginObject();
  json.MemberText("format", manifest.source_format);
  json.MemberText("fingerprint", manifest.source_fingerprint);
  json.Member("quantization_config", manifest.source_quantization_config);
  if (!manifest.source_path.empty()) json.MemberText("path", manifest.source_path);
  if (manifest.source_hub) {
    json.Member("hub",
                {{"name", manifest.source_hub->name}, {"commit", manifest.source_hub->commit}});
  }
  json.EndObject();
  json.Key("layouts");
  json.BeginObject();
  for (const auto& [id, layout] : manifest.layouts) {
    json.Member(id, {{"version", layout.version}, {"fingerprint", layout.fingerprint}});
  }
  json.EndObject();
}

void WriteReasons(const std::map<std::string, std::string>& reasons, JsonWriter& json) {
  json.BeginObject();
  for (const auto& [module, why] : reasons) json.MemberText(module, why);
  json.EndObject();
}

// Everything except the hash and the closing bracket.
void WriteHashed(const Manifest& manifest, const ManifestRecords& records, JsonWriter& json) {
  json.BeginObject();
  WriteHead(manifest, json);
  json.Key("modules");
  json.BeginObject();
  records.VisitModules([&json](const std::string& name, const ModuleRecord& module) {
    json.Key(name);
    WriteModule(module, json);
  });
  json.EndObject();
  json.Key("kept");
  WriteReasons(manifest.kept, json);
  json.Key("dequantized");
  WriteReasons(manifest.dequantized, json);
  json.Key("tensors");
  json.BeginArray();
  records.VisitTensors([&json](const TensorRecord& tensor) {
    const JsonWriter::Line line(json);
    WriteTensor(tensor, json);
  });
  json.EndArray();
  json.Key("files");
  json.BeginObject();
  for (const auto& [name, file] : manifest.files) {
    json.Member(name, {{"bytes", file.bytes}, {"xxh3_128", file.xxh3_128}});
  }
  json.EndObject();
  json.Flush();
}

void Write(const Manifest& manifest, const ManifestRecords& records, const JsonWriter::Sink& sink) {
  Xxh3Hasher hasher;
  JsonWriter json([&](std::string_view text) {
    hasher.Update(text);
    sink(text);
  });
  WriteHashed(manifest, records, json);
  sink(fmt::format("{}{}\"\n}}\n", kManifestHashPrefix, hasher.HexDigest()));
}

}  // namespace

void OwnRecords::VisitModules(const ModuleVisitor& visit) const {
  for (const auto& [name, module] : manifest_.modules) visit(name, module);
}

void OwnRecords::VisitTensors(const TensorVisitor& visit) const {
  for (const TensorRecord& tensor : manifest_.tensors) visit(tensor);
}

std::string KindOfModule(const ModuleRecord& record) {
  return fmt::format("{} {} {} {}", record.layout, record.n, record.k,
                     DescribeScheme(record.scheme));
}

std::optional<ActivationScheme> SourceActivations(const Scheme& packed,
                                                  const ActivationScheme& stored) {
  const bool said = packed.code != CodeType::kBF16 && stored != packed.activations;
  return said ? std::optional(stored) : std::nullopt;
}

PackRequest RequestOf(const Manifest& manifest, const ModuleRecord& record) {
  PackRequest request{.scheme = record.scheme,
                      .n = record.n,
                      .k = record.k,
                      .activation_dtype = manifest.activation_dtype,
                      .stored_scale_dtype = record.stored_scale_dtype,
                      .bias_dtype = std::nullopt,
                      .reordered = record.act_order || record.parts.contains("input_order"),
                      .exact_scales = manifest.exact_scales,
                      .weights_desc = record.weights_desc};
  const Layout* layout = FindLayout(record.layout);
  if (layout != nullptr) SetModuleKind(*layout, request);
  if (record.experts > 0) request.experts = record.experts;
  // The dtype of the bias in the source matters to checkpoints only, which keep it.
  const auto bias = record.parts.find("bias");
  if (bias != record.parts.end()) {
    const bool kept = layout != nullptr && layout->checkpoint;
    request.bias_dtype = kept ? bias->second.dtype : DType::kF32;
  }
  return request;
}

bool IsSourcePath(const std::string& path) {
  return !path.empty() && path.front() != '/' && path.size() <= kMaxSourcePathBytes &&
         Printable(path, kMaxSourcePathBytes) == path;
}

Status WriteManifest(const std::filesystem::path& path, const Manifest& manifest,
                     const ManifestRecords& records) {
  Result<TextFile> file = TextFile::Create(path);
  if (!file.ok()) return file.status();
  Write(manifest, records, [&file](std::string_view text) { file->Append(text); });
  return file->Finish();
}

std::string ManifestText(const Manifest& manifest) {
  std::string all;
  Write(manifest, OwnRecords(manifest), [&all](std::string_view text) { all += text; });
  return all;
}

}  // namespace prepack
