// Reads prepack.json. Its own hash is checked first, so that damage is reported as damage and not
// as a strange field; then every field, because a folder may also have been made to lie with a
// right hash.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/hash.h"
#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/container/required_fields.h"
#include "prepack/io/file.h"
#include "prepack/io/output_folder.h"
#include "prepack/layouts/onednn_w8a8.h"
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

Status CheckFileName(const std::string& name, std::string_view where) {
  if (IsPlainFileName(name)) return {};
  return Malformed(where, "not a plain file name").Found(name);
}

Result<DType> DTypeField(const Json& object, std::string_view key, std::string_view where) {
  PREPACK_TRY_ASSIGN(const std::string name, StringField(object, key, where));
  const std::optional<DType> dtype = DTypeFromName(name);
  if (dtype) return *dtype;
  return Malformed(where, fmt::format("field \"{}\" is not a known dtype", key))
      .Found(name)
      .Expected(AllDTypeNames());
}

Result<TensorRecord> ReadTensor(const Json& json, std::string_view where) {
  TensorRecord tensor;
  PREPACK_TRY_ASSIGN(std::string name, StringField(json, "tensor", where));
  PREPACK_TRY_ASSIGN(std::string file, StringField(json, "file", where));
  PREPACK_TRY(CheckFileName(file, where));
  PREPACK_TRY_ASSIGN(const uint64_t offset, UintField(json, "offset", where));
  PREPACK_TRY_ASSIGN(const DType dtype, DTypeField(json, "dtype", where));
  PREPACK_TRY_ASSIGN(const std::vector<uint64_t> shape, UintArrayField(json, "shape", where));
  PREPACK_TRY_ASSIGN(std::string hash, StringField(json, "xxh3_128", where));

  tensor.tensor = std::move(name);
  tensor.file = std::move(file);
  tensor.offset = offset;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.xxh3_128 = std::move(hash);
  const std::optional<uint64_t> bytes = TensorBytes(tensor.dtype, tensor.shape);
  if (!bytes || !CheckedAdd(tensor.offset, *bytes)) {
    return Malformed(where, "the size of the tensor overflows");
  }
  return tensor;
}

// The full scheme, and the fields that repeat some of it for consumers.
Result<Scheme> ReadModuleScheme(const Json& json, uint64_t n, uint64_t k, std::string_view where) {
  PREPACK_TRY_ASSIGN(const Json* numbers, ObjectField(json, "numbers", where));
  PREPACK_TRY_ASSIGN(const Scheme scheme, ReadScheme(*numbers, n, k, where));
  PREPACK_TRY_ASSIGN(const uint64_t group_size, UintField(json, "group_size", where));
  PREPACK_TRY_ASSIGN(const bool symmetric, BoolField(json, "symmetric", where));
  PREPACK_TRY_ASSIGN(const std::string name, StringField(json, "scheme", where));
  if (group_size != scheme.group_size || symmetric != scheme.symmetric ||
      name != SchemeName(scheme)) {
    return Malformed(where, "the scheme and its \"numbers\" contradict each other")
        .Found(name)
        .Expected(SchemeName(scheme));
  }
  return scheme;
}

// The members of a fused module; their channels add up to its channels.
Status ReadFused(const Json& json, std::string_view where, ModuleRecord& module) {
  PREPACK_TRY_ASSIGN(const Json* members, ArrayField(json, "fused", where));
  uint64_t channels = 0;
  for (const Json& member : *members) {
    PREPACK_TRY_ASSIGN(std::string name, StringField(member, "module", where));
    PREPACK_TRY_ASSIGN(const uint64_t n, UintField(member, "outputs", where));
    if (n == 0 || n > module.n - channels) {
      return Malformed(where, "field \"fused\": the outputs do not add up to those of the module")
          .Expected(fmt::format("{} in all", module.n));
    }
    channels += n;
    module.fused.push_back({std::move(name), n});
  }
  if (channels == module.n && module.fused.size() > 1) return {};
  return Malformed(where, "field \"fused\" does not list several modules with all outputs")
      .Found(fmt::format("{} with {} outputs", module.fused.size(), channels))
      .Expected(fmt::format("{} outputs", module.n));
}

Result<ModuleRecord> ReadModule(const Json& json, std::string_view where) {
  ModuleRecord module;
  PREPACK_TRY_ASSIGN(std::string layout, StringField(json, "layout", where));
  PREPACK_TRY_ASSIGN(const std::vector<uint64_t> shape, UintArrayField(json, "shape", where));
  if (shape.size() != 2 || shape[0] == 0 || shape[1] == 0) {
    return Malformed(where, "field \"shape\" is not [N, K]");
  }
  // Far above any real layer; keeps products of N, K and small factors from overflowing.
  constexpr uint64_t kMaxChannels = 1ULL << 31;
  if (shape[0] > kMaxChannels || shape[1] > kMaxChannels) {
    return Malformed(where, "field \"shape\" is out of range");
  }
  PREPACK_TRY_ASSIGN(const Scheme scheme, ReadModuleScheme(json, shape[0], shape[1], where));
  PREPACK_TRY_ASSIGN(const DType scale_dtype, DTypeField(json, "stored_scale_dtype", where));
  PREPACK_TRY_ASSIGN(std::string rounding, StringField(json, "scale_rounding", where));
  PREPACK_TRY_ASSIGN(const uint64_t rounded, UintField(json, "rounded_scales", where));
  PREPACK_TRY_ASSIGN(std::string source, StringField(json, "source_xxh3_128", where));
  PREPACK_TRY_ASSIGN(const Json* parts, ObjectField(json, "parts", where));

  module.layout = std::move(layout);
  module.n = shape[0];
  module.k = shape[1];
  module.scheme = scheme;
  module.stored_scale_dtype = scale_dtype;
  module.scale_rounding = std::move(rounding);
  module.rounded_scales = rounded;
  module.source_xxh3_128 = std::move(source);
  if (const auto desc = json.find("memory_descriptor"); desc != json.end()) {
    PREPACK_TRY_ASSIGN(module.weights_desc, ReadBlockedDesc(*desc, module.n, module.k, where));
  } else if (module.layout == kOneDnnW8A8.id) {
    return Malformed(where, "field \"memory_descriptor\" is missing");
  }
  if (const auto origin = json.find("onednn"); origin != json.end()) {
    PREPACK_TRY_ASSIGN(OneDnnOrigin read,
                       ReadOneDnnOrigin(*origin, fmt::format("{}: onednn", where)));
    module.onednn = std::move(read);
  }
  if (json.contains("fused")) {
    PREPACK_TRY(ReadFused(json, where, module));
  }
  for (const auto& [name, part] : parts->items()) {
    PREPACK_TRY_ASSIGN(TensorRecord record,
                       ReadTensor(part, fmt::format("{}: part {}", where, name)));
    module.parts.emplace(name, std::move(record));
  }
  return module;
}

Status ReadLayouts(const Json& json, std::string_view where, Manifest& manifest) {
  PREPACK_TRY_ASSIGN(const Json* layouts, ObjectField(json, "layouts", where));
  for (const auto& [id, layout] : layouts->items()) {
    const std::string place = fmt::format("{}: layout {}", where, id);
    PREPACK_TRY_ASSIGN(const uint64_t version, UintField(layout, "version", place));
    PREPACK_TRY_ASSIGN(std::string fingerprint, StringField(layout, "fingerprint", place));
    if (version > UINT32_MAX) return Malformed(place, "the version is out of range");
    manifest.layouts[id] = {static_cast<uint32_t>(version), std::move(fingerprint)};
  }
  return {};
}

// An object of module → sentence.
Status ReadReasons(const Json& json, std::string_view key, std::string_view where,
                   std::map<std::string, std::string>& reasons) {
  PREPACK_TRY_ASSIGN(const Json* object, ObjectField(json, key, where));
  for (const auto& [name, why] : object->items()) {
    // Not with StringField, which searches for the key: there may be an entry for every module.
    if (!why.is_string()) {
      return Malformed(where, fmt::format("field \"{}\" has the wrong type", name))
          .Found(why.type_name())
          .Expected("string");
    }
    reasons.emplace(name, why.get_ref<const std::string&>());
  }
  return {};
}

Status ReadModules(const Json& json, std::string_view where, Manifest& manifest) {
  PREPACK_TRY_ASSIGN(const Json* modules, ObjectField(json, "modules", where));
  for (const auto& [name, module] : modules->items()) {
    const std::string place = fmt::format("{}: module {}", where, name);
    PREPACK_TRY_ASSIGN(ModuleRecord record, ReadModule(module, place));
    if (!manifest.layouts.contains(record.layout)) {
      return Malformed(place, "\"layouts\" does not list its layout").Found(record.layout);
    }
    manifest.modules.emplace(name, std::move(record));
  }
  Status status = ReadReasons(json, "kept", where, manifest.kept);
  return status.ok() ? ReadReasons(json, "dequantized", where, manifest.dequantized) : status;
}

Status ReadTensorsAndFiles(const Json& json, std::string_view where, Manifest& manifest) {
  PREPACK_TRY_ASSIGN(const Json* tensors, ArrayField(json, "tensors", where));
  for (const Json& tensor : *tensors) {
    PREPACK_TRY_ASSIGN(
        TensorRecord record,
        ReadTensor(tensor, fmt::format("{}: tensors[{}]", where, manifest.tensors.size())));
    manifest.tensors.push_back(std::move(record));
  }
  PREPACK_TRY_ASSIGN(const Json* files, ObjectField(json, "files", where));
  for (const auto& [name, file] : files->items()) {
    const std::string place = fmt::format("{}: file {}", where, name);
    PREPACK_TRY(CheckFileName(name, place));
    PREPACK_TRY_ASSIGN(const uint64_t bytes, UintField(file, "bytes", place));
    PREPACK_TRY_ASSIGN(std::string hash, StringField(file, "xxh3_128", place));
    manifest.files[name] = {bytes, std::move(hash)};
  }
  return {};
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

Result<std::string> ReadSourcePath(const Json& source, std::string_view where) {
  if (!source.contains("path")) return std::string();  // not known at the time of packing
  Result<std::string> path = StringField(source, "path", where);
  if (!path.ok() || IsSourcePath(*path)) return path;
  return Malformed(where, "field \"path\" of the source is not a relative path")
      .Found(Printable(*path))
      .Expected(fmt::format("1 to {} bytes of UTF-8", kMaxSourcePathBytes));
}

// Present if the user has accepted findings.
Status ReadAccepted(const Json& json, std::string_view where, Manifest& manifest) {
  if (!json.contains("accepted")) return {};
  PREPACK_TRY_ASSIGN(const std::vector<std::string> names,
                     StringArrayField(json, "accepted", where));
  Result<AcceptedFindings> accepted = AcceptedFindings::Make(names, where);
  if (!accepted.ok())
    return Malformed(where, "field \"accepted\" names a finding that cannot be accepted");
  manifest.accepted = *std::move(accepted);
  return {};
}

Status ReadHead(const Json& json, std::string_view where, Manifest& manifest) {
  PREPACK_TRY_ASSIGN(const uint64_t version, UintField(json, "manifest_version", where));
  PREPACK_TRY_ASSIGN(std::string tool, StringField(json, "prepack_version", where));
  if (version != static_cast<uint64_t>(kManifestVersion)) {
    return Unsupported(where, "unknown manifest version")
        .Found(fmt::format("{}, written by prepack {}", version, tool))
        .Expected(fmt::format("{}", kManifestVersion))
        .Hint("Use that version of prepack, or convert the source again with this one");
  }
  PREPACK_TRY_ASSIGN(std::string target, StringField(json, "target", where));
  PREPACK_TRY_ASSIGN(const DType activation, DTypeField(json, "activation_dtype", where));
  PREPACK_TRY_ASSIGN(const std::string scales, StringField(json, "scales", where));
  if (scales != "exact" && scales != "runtime") {
    return Malformed(where, "field \"scales\" is unknown")
        .Found(scales)
        .Expected("exact or runtime");
  }
  PREPACK_TRY(ReadAccepted(json, where, manifest));
  if (json.contains("run")) {
    PREPACK_TRY_ASSIGN(const Json* run, ObjectField(json, "run", where));
    PREPACK_TRY_ASSIGN(RunIdentity identity, ReadIdentity(*run, fmt::format("{}: run", where)));
    manifest.run = std::move(identity);
  }
  PREPACK_TRY_ASSIGN(const Json* source, ObjectField(json, "source", where));
  PREPACK_TRY_ASSIGN(std::string format, StringField(*source, "format", where));
  PREPACK_TRY_ASSIGN(std::string fingerprint, StringField(*source, "fingerprint", where));
  PREPACK_TRY_ASSIGN(const Json* config, ObjectField(*source, "quantization_config", where));
  PREPACK_TRY_ASSIGN(std::string path, ReadSourcePath(*source, where));

  manifest.prepack_version = std::move(tool);
  manifest.target = std::move(target);
  manifest.activation_dtype = activation;
  manifest.exact_scales = scales == "exact";
  manifest.source_format = std::move(format);
  manifest.source_fingerprint = std::move(fingerprint);
  manifest.source_quantization_config = *config;
  manifest.source_path = std::move(path);
  return {};
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
  PREPACK_TRY_ASSIGN(const std::string text, ReadTextFile(path, kMaxManifestBytes));
  const std::string where = path.string();
  PREPACK_TRY(CheckHash(text, where));
  // Some 40 for a module and 8 for a tensor.
  constexpr JsonLimits kLimits{.max_values = 20'000'000};
  PREPACK_TRY_ASSIGN(const Json json, ParseJsonStrict(text, where, kLimits));

  Manifest manifest;
  for (const auto read : {ReadHead, ReadLayouts, ReadModules, ReadTensorsAndFiles}) {
    PREPACK_TRY(read(json, where, manifest));
  }
  PREPACK_TRY(CheckTensors(manifest, where));
  return manifest;
}

}  // namespace prepack
