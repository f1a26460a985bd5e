// Reads prepack.json. Its own hash is checked first, so that damage is reported as damage and not
// as a strange field; then every field, because a folder may also have been made to lie with a
// right hash.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/hash.h"
#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/container/json_fields.h"
#include "prepack/io/file.h"
#include "prepack/io/output_folder.h"
#include "prepack/layouts/table.h"
#include "prepack/packed/manifest.h"
#include "prepack/packed/scheme_json.h"

namespace prepack {
namespace {

// The hash is part of the text and covers everything before it.
Status CheckHash(std::string_view text, std::string_view where) {
  const size_t at = text.rfind(kManifestHashPrefix);
  if (at == std::string_view::npos) {
    return Malformed(where, "the manifest does not contain its own hash")
        .Hint("The file was edited or damaged: run `prepack convert` again");
  }
  const std::string_view stored = text.substr(at + kManifestHashPrefix.size());
  const std::string computed = Xxh3Hex(text.substr(0, at));
  if (stored == computed + "\"\n}\n") return {};
  return Malformed(where, "the manifest is not what was written: its hash differs")
      .Found(computed)
      .Expected(stored.substr(0, computed.size()))
      .Hint("The file was edited or damaged: run `prepack convert` again");
}

void CheckFileName(const std::string& name, JsonFields& fields) {
  if (!IsPlainFileName(name)) {
    fields.Keep(Malformed(fields.where(), "not a plain file name").Found(name));
  }
}

DType ReadDType(JsonFields& fields, std::string_view key) {
  const std::string name = fields.Text(key);
  if (const std::optional<DType> dtype = DTypeFromName(name)) return *dtype;
  fields.Keep(Malformed(fields.where(), fmt::format("field \"{}\" is not a known dtype", key))
                  .Found(name)
                  .Expected(AllDTypeNames()));
  return {};
}

TensorRecord ReadTensor(JsonFields fields) {
  TensorRecord tensor{.tensor = fields.Text("tensor"),
                      .file = fields.Text("file"),
                      .offset = fields.Uint("offset"),
                      .dtype = ReadDType(fields, "dtype"),
                      .shape = fields.Uints("shape"),
                      .xxh3_128 = fields.Text("xxh3_128")};
  CheckFileName(tensor.file, fields);
  const std::optional<uint64_t> bytes = TensorBytes(tensor.dtype, tensor.shape);
  if (!bytes || !CheckedAdd(tensor.offset, *bytes)) {
    fields.Keep(Malformed(fields.where(), "the size of the tensor overflows"));
  }
  return tensor;
}

// The full scheme, and the fields that repeat some of it for consumers.
Scheme ReadModuleScheme(JsonFields& fields, uint64_t n, uint64_t k) {
  const Scheme scheme = fields.Take(ReadScheme(*fields.Object("numbers"), n, k, fields.where()));
  const std::string name = fields.Text("scheme");
  if (fields.Uint("group_size") != scheme.group_size ||
      fields.Bool("symmetric") != scheme.symmetric || name != SchemeName(scheme)) {
    fields.Keep(Malformed(fields.where(), "the scheme and its \"numbers\" contradict each other")
                    .Found(name)
                    .Expected(SchemeName(scheme)));
  }
  return scheme;
}

// The members of a fused module; their channels add up to its channels.
std::vector<FusedMember> ReadFused(JsonFields& fields, const ModuleRecord& module) {
  std::vector<FusedMember> members;
  uint64_t channels = 0;
  for (const Json& json : *fields.Array("fused")) {
    JsonFields member = fields.Same(json);
    std::string name = member.Text("module");
    const uint64_t n = member.Uint("outputs");
    if (n == 0 || n > module.n - channels) {
      fields.Keep(Malformed(fields.where(),
                            "field \"fused\": the outputs do not add up to those of the module")
                      .Expected(fmt::format("{} in all", module.n)));
      return members;
    }
    channels += n;
    members.push_back({std::move(name), n});
  }
  if (channels == module.n && members.size() > 1) return members;
  fields.Keep(
      Malformed(fields.where(), "field \"fused\" does not list several modules with all outputs")
          .Found(fmt::format("{} with {} outputs", members.size(), channels))
          .Expected(fmt::format("{} outputs", module.n)));
  return members;
}

// How many experts the members are; each has as many members and output channels as the first.
uint64_t ReadExperts(JsonFields& fields, const std::vector<FusedMember>& members) {
  const uint64_t experts = fields.Uint("experts");
  const uint64_t each = experts == 0 ? 0 : members.size() / experts;
  bool alike = experts > 1 && each > 0 && members.size() % experts == 0;
  for (size_t i = 0; alike && i < members.size(); ++i) {
    alike = members[i].n == members[i % each].n;
  }
  if (alike) return experts;
  fields.Keep(Malformed(fields.where(),
                        "field \"experts\" is not the number of experts that \"fused\" lists, each "
                        "with the same outputs")
                  .Found(fmt::format("{} for {} modules", experts, members.size())));
  return experts;
}

// False when nothing else can be said of the module.
bool ReadShape(JsonFields& fields, ModuleRecord& module) {
  const std::vector<uint64_t> shape = fields.Uints("shape");
  if (shape.size() != 2 || shape[0] == 0 || shape[1] == 0) {
    fields.Keep(Malformed(fields.where(), "field \"shape\" is not [N, K]"));
    return false;
  }
  // Far above any real layer; keeps products of N, K and small factors from overflowing.
  constexpr uint64_t kMaxChannels = 1ULL << 31;
  module.n = shape[0];
  module.k = shape[1];
  if (module.n <= kMaxChannels && module.k <= kMaxChannels) return true;
  fields.Keep(Malformed(fields.where(), "field \"shape\" is out of range"));
  return false;
}

ModuleRecord ReadModule(JsonFields fields) {
  ModuleRecord module;
  module.layout = fields.Text("layout");
  if (!ReadShape(fields, module)) return module;
  module.scheme = ReadModuleScheme(fields, module.n, module.k);
  module.stored_scale_dtype = ReadDType(fields, "stored_scale_dtype");
  module.scale_rounding = fields.Text("scale_rounding");
  module.rounded_scales = fields.Uint("rounded_scales");
  module.source_xxh3_128 = fields.Text("source_xxh3_128");
  const Layout* layout = FindLayout(module.layout);
  if (fields.Has("memory_descriptor") || (layout != nullptr && layout->FormIsAsked())) {
    if (const Json* desc = fields.Any("memory_descriptor")) {
      module.weights_desc = fields.Take(ReadBlockedDesc(*desc, module.n, module.k, fields.where()));
    }
  }
  if (fields.Has("onednn")) {
    module.onednn = fields.Take(
        ReadOneDnnOrigin(*fields.Any("onednn"), fmt::format("{}: onednn", fields.where())));
  }
  std::vector<FusedMember> members;
  if (fields.Has("fused")) members = ReadFused(fields, module);
  if (fields.Has("experts")) module.experts = ReadExperts(fields, members);
  module.fused = FusedMembers(std::move(members), module.experts);
  if (fields.Has("act_order")) module.act_order = fields.Bool("act_order");
  if (fields.Has("source_activations")) {
    module.source_activations =
        fields.Take(ReadActivationScheme(*fields.Any("source_activations"), fields.where()));
  }
  for (const auto& [name, part] : fields.Object("parts")->items()) {
    module.parts.emplace(name, ReadTensor(fields.In(part, fmt::format("part {}", name))));
  }
  return module;
}

void ReadLayouts(JsonFields& fields, Manifest& manifest) {
  for (const auto& [id, json] : fields.Object("layouts")->items()) {
    JsonFields layout = fields.In(json, fmt::format("layout {}", id));
    const uint64_t version = layout.Uint("version");
    if (version > UINT32_MAX) {
      layout.Keep(Malformed(layout.where(), "the version is out of range"));
    }
    manifest.layouts[id] = {static_cast<uint32_t>(version), layout.Text("fingerprint")};
  }
}

std::string WhereModule(std::string_view name) {
  return fmt::format("module {}", name);
}

// The modules themselves were read while the text was.
void ReadModules(JsonFields& fields, Manifest& manifest) {
  const Json& modules = *fields.Object("modules");
  for (const auto& [name, record] : manifest.modules) {
    if (manifest.layouts.contains(record.layout)) continue;
    fields.Keep(Malformed(fields.In(modules, WhereModule(name)).where(),
                          "\"layouts\" does not list its layout")
                    .Found(record.layout));
    return;
  }
  manifest.kept = fields.TextMap("kept");
  manifest.dequantized = fields.TextMap("dequantized");
}

void ReadTensorsAndFiles(JsonFields& fields, Manifest& manifest) {
  const Json& tensors = *fields.Array("tensors");
  for (size_t i = 0; i < tensors.size() && fields.ok(); ++i) {
    manifest.tensors.push_back(ReadTensor(fields.In(tensors[i], "tensors", i)));
  }
  for (const auto& [name, json] : fields.Object("files")->items()) {
    JsonFields file = fields.In(json, fmt::format("file {}", name));
    CheckFileName(name, file);
    manifest.files[name] = {file.Uint("bytes"), file.Text("xxh3_128")};
  }
}

std::vector<const TensorRecord*> AllTensors(const Manifest& manifest) {
  std::vector<const TensorRecord*> tensors;
  for (const auto& [name, module] : manifest.modules) {
    for (const auto& [part, tensor] : module.parts) tensors.push_back(&tensor);
  }
  for (const TensorRecord& tensor : manifest.tensors) tensors.push_back(&tensor);
  return tensors;
}

// Every tensor must lie within a file that the manifest lists, and must be listed once.
Status CheckTensors(const Manifest& manifest, std::string_view where) {
  std::vector<const TensorRecord*> tensors = AllTensors(manifest);
  for (const TensorRecord* tensor : tensors) {
    const auto file = manifest.files.find(tensor->file);
    if (file != manifest.files.end() && tensor->offset + tensor->bytes() <= file->second.bytes) {
      continue;
    }
    return Malformed(fmt::format("{}: tensor {}", where, tensor->tensor),
                     "its bytes do not lie within a file of the manifest")
        .Found(tensor->file);
  }
  const auto name = [](const TensorRecord* tensor) -> std::string_view { return tensor->tensor; };
  std::ranges::sort(tensors, {}, name);
  const auto twin = std::ranges::adjacent_find(tensors, {}, name);
  if (twin == tensors.end()) return {};
  return Malformed(fmt::format("{}: tensor {}", where, (*twin)->tensor), "it is listed twice");
}

std::string ReadSourcePath(JsonFields& source) {
  if (!source.Has("path")) return "";  // not known when it was packed
  std::string path = source.Text("path");
  if (!IsSourcePath(path)) {
    source.Keep(Malformed(source.where(), "field \"path\" of the source is not a relative path")
                    .Found(Printable(path))
                    .Expected(fmt::format("1 to {} bytes of UTF-8", kMaxSourcePathBytes)));
  }
  return path;
}

// Present if the source lay in a cache of the hub.
std::optional<HubOrigin> ReadSourceHub(JsonFields& source) {
  if (!source.Has("hub")) return std::nullopt;
  JsonFields fields = source.In(*source.Object("hub"), "hub");
  HubOrigin origin{.name = fields.Text("name"), .commit = fields.Text("commit")};
  const std::optional<HubName> name = ParseHubName(origin.name);
  if (!name || !name->revision.empty() || !IsHubCommit(origin.commit)) {
    fields.Keep(Malformed(fields.where(), "not a model of the hub")
                    .Found(Printable(origin.Text()))
                    .Expected("a name as ORG/NAME and a commit of 40 hexadecimal digits"));
  }
  return origin;
}

// Present if the user has accepted findings.
void ReadAccepted(JsonFields& fields, Manifest& manifest) {
  if (!fields.Has("accepted")) return;
  Result<AcceptedFindings> accepted =
      AcceptedFindings::Make(fields.Texts("accepted"), AcceptedBy::kConversion, fields.where());
  if (accepted.ok()) {
    manifest.accepted = *std::move(accepted);
  } else {
    fields.Keep(
        Malformed(fields.where(), "field \"accepted\" names a finding that cannot be accepted")
            .Found(accepted.status().found()));
  }
}

void ReadHead(JsonFields& fields, Manifest& manifest) {
  const uint64_t version = fields.Uint("manifest_version");
  manifest.prepack_version = fields.Text("prepack_version");
  if (version != static_cast<uint64_t>(kManifestVersion)) {
    fields.Keep(
        Unsupported(fields.where(), "unknown manifest version")
            .Found(fmt::format("{}, written by prepack {}", version, manifest.prepack_version))
            .Expected(fmt::format("{}", kManifestVersion))
            .Hint("Use that version of prepack, or convert the source again with this "
                  "one"));
  }
  manifest.target = fields.Text("target");
  manifest.activation_dtype = ReadDType(fields, "activation_dtype");
  const std::string scales = fields.Text("scales");
  if (scales != "exact" && scales != "runtime") {
    fields.Keep(Malformed(fields.where(), "field \"scales\" is unknown")
                    .Found(scales)
                    .Expected("exact or runtime"));
  }
  manifest.exact_scales = scales == "exact";
  ReadAccepted(fields, manifest);
  if (fields.Has("run")) {
    manifest.run =
        fields.Take(ReadIdentity(*fields.Object("run"), fmt::format("{}: run", fields.where())));
  }
  JsonFields source = fields.Same(*fields.Object("source"));
  manifest.source_format = source.Text("format");
  manifest.source_fingerprint = source.Text("fingerprint");
  manifest.source_quantization_config = *source.Object("quantization_config");
  manifest.source_path = ReadSourcePath(source);
  manifest.source_hub = ReadSourceHub(source);
}

}  // namespace

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

Result<Manifest> ReadManifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifestName;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return Usage(folder.string(),
                 fmt::format("this is not a packed folder: it has no {}", kManifestName))
        .Hint("`prepack convert` makes one from a quantized checkpoint");
  }
  return ReadManifestFile(path);
}

Result<Manifest> ReadManifestFile(const std::filesystem::path& path) {
  PREPACK_TRY_ASSIGN(std::string text, ReadTextFile(path, kMaxManifestBytes));
  const std::string where = path.string();
  PREPACK_TRY(CheckHash(text, where));
  // Some 40 for a module and 8 for a tensor.
  constexpr JsonLimits kLimits{.max_values = 20'000'000};
  Manifest manifest;
  Status of_modules;
  const Json no_fields = Json::object();
  const JsonFields of_text(no_fields, where, of_modules);
  const auto read_module = [&](const std::string& name, const Json& json) {
    if (!of_modules.ok()) return;
    manifest.modules.emplace(name, ReadModule(of_text.In(json, WhereModule(name))));
  };
  const JsonEntries modules{.of = "modules", .visit = read_module};
  PREPACK_TRY_ASSIGN(const Json json, ParseJsonStrict(text, where, kLimits, &modules));
  text = {};  // as large as all that is made of it

  Status status;
  JsonFields fields(json, where, status);
  for (const auto read : {ReadHead, ReadLayouts}) {
    read(fields, manifest);
    if (!status.ok()) return status;
  }
  PREPACK_TRY(std::move(of_modules));
  for (const auto read : {ReadModules, ReadTensorsAndFiles}) {
    read(fields, manifest);
    if (!status.ok()) return status;
  }
  PREPACK_TRY(CheckTensors(manifest, where));
  return manifest;
}

}  // namespace prepack
